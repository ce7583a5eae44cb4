"""The group and the offsets of a mirrored query, and the commits that the metadata allows."""

from __future__ import annotations

from typing import Any

import pytest

from sparklag_kafka.protocol.groups import CommittedTopic
from sparklag_schemas import MirrorSettings, Offsets, Settings, encode
from sparklag_service.intakes.group_commits import CommitMetadata, is_mirrored, parse_metadata
from sparklag_service.mirror.commits import (
    CommitDecision,
    GroupOwnership,
    MirroredPosition,
    MirrorPlan,
    commit_outcome,
    decide_commit,
    group_outcome,
)
from sparklag_service.view.view import Entry, View
from tests.messages import QUERY_ID, lag_event
from tests.service.pipelines import pipeline_of
from tests.service.states import source, state

ME, OTHER = "id-me", "id-other"
HOUR_MS = 3_600_000


def plan(*queries: str, **fields: Any) -> MirrorPlan:
    return MirrorPlan(MirrorSettings(queries=list(queries or (".*",)), **fields))


@pytest.mark.parametrize(
    ("queries", "exclude", "mirrored"),
    [
        (["orders"], [], True),
        ([QUERY_ID], [], True),
        (["ord"], [], False),
        ([".*"], ["ord.*"], False),
        ([".*"], [QUERY_ID], False),
        ([".*"], ["other"], True),
    ],
)
def test_patterns_are_of_the_whole_name_or_id_and_exclusion_wins(
    queries: list[str], exclude: list[str], mirrored: bool
) -> None:
    position = plan(*queries, exclude=exclude).position(state(), "default")
    assert (position is not None) is mirrored


def test_a_consumer_group_is_not_mirrored() -> None:
    assert plan().position(state(origin="group"), "default") is None


def test_what_is_not_known_to_be_processed_is_not_mirrored() -> None:
    assert plan().position(state(source(None), source({})), "default") is None


@pytest.mark.parametrize(
    ("template", "name", "group"),
    [
        ("spark-{query}", "orders", "spark-orders"),
        ("spark-{query}", None, f"spark-{ME}"),
        ("on-{cluster}.{query_id}", "orders", f"on-default.{ME}"),
    ],
)
def test_the_group_is_named_by_the_template(template: str, name: str | None, group: str) -> None:
    assert plan(group=template).group(name, ME, "default") == group


def test_of_two_sources_the_lower_position_counts_and_each_cluster_has_its_own() -> None:
    query = state(
        source({"t": {0: 5, 1: 9}}),
        source({"t": {0: 7, 1: 2}, "u": {0: 1}}),
        source({"t": {0: 1}}, cluster="east"),
        source({"t": {0: 0}}, cluster=None),
    )
    here, there = (plan().position(query, cluster) for cluster in ("default", "east"))
    assert here is not None
    assert here.offsets == {"t": {0: 5, 1: 2}, "u": {0: 1}}
    assert there is not None
    assert there.offsets == {"t": {0: 1}}


def test_metadata_is_read_as_it_was_written_and_nothing_else_is_one() -> None:
    metadata = CommitMetadata(7, "an id with spaces")
    assert parse_metadata(metadata.text) == metadata
    for text in ("", "sparklag", "sparklag x", "sparklag  7", "spark x 7", "sparklag x ²", "\0"):
        assert parse_metadata(text) is None
    assert is_mirrored(group({"t": {0: (1, CommitMetadata(7, "x"))}}))
    assert not is_mirrored(group({"t": {0: (1, None)}}))


Marked = dict[str, dict[int, tuple[int, CommitMetadata | None]]]


def group(committed: Marked) -> dict[str, CommittedTopic]:
    return {
        topic: CommittedTopic(
            {number: offset for number, (offset, _) in numbers.items()},
            {
                number: metadata.text
                for number, (_, metadata) in numbers.items()
                if metadata is not None
            },
            {},
        )
        for topic, numbers in committed.items()
    }


def decided(
    committed: Marked,
    *,
    others: str = "OK",
    received_s: float = 0,
    end: str | None = None,
    **fields: Any,
) -> CommitDecision:
    """The decision for `orders` at {0: 5, 1: 5}, observed at 100 and received at 0 s. Another query
    of its name has the status `others`, was received at `received_s`, and has `end` for its
    `driver_end`."""
    position = MirroredPosition(
        **{
            "query_id": ME,
            "name": "orders",
            "group": "spark-orders",
            "observed_at_ms": 100,
            "offsets": {"t": {0: 5, 1: 5}},
            **fields,
        }
    )
    view = View()
    for query_id, status in ((ME, "OK"), (OTHER, others)):
        if status:
            event = lag_event(
                query_id=query_id,
                query="orders",
                status=status,
                driver_end=end if query_id == OTHER else None,
            )
            view.put(Entry(event, encode(event), 0.0 if query_id == ME else received_s, 0, 0))
    ownership = GroupOwnership(plan(), view, "default", 30.0)
    return decide_commit(position, group(committed), ownership)


ALL: Offsets = {"t": {0: 5, 1: 5}}


def mine(*numbers: int, offset: int = 5, at: int = 90) -> Marked:
    return {"t": dict.fromkeys(numbers, (offset, CommitMetadata(at, ME)))}


def theirs(*numbers: int, at: int = 90) -> Marked:
    return {"t": dict.fromkeys(numbers, (4, CommitMetadata(at, OTHER)))}


@pytest.mark.parametrize(
    ("committed", "fields", "offsets"),
    [
        pytest.param({}, {"others": ""}, ALL, id="nothing was committed yet"),
        pytest.param(mine(0, 1), {}, {}, id="it is there"),
        pytest.param(mine(0, 1), {"observed_at_ms": 90 + HOUR_MS}, ALL, id="it would expire"),
        pytest.param(mine(0, 1, offset=4), {}, ALL, id="the query has moved on"),
        pytest.param(mine(0, 1, offset=9), {}, ALL, id="the query went back"),
        pytest.param(mine(0), {}, {"t": {1: 5}}, id="a partition is new"),
        pytest.param(mine(0, 1, 7, offset=4), {}, ALL, id="a partition is gone: it stays"),
        pytest.param(mine(0, 1, offset=9, at=100), {}, {}, id="of this very moment"),
        pytest.param(mine(0, 1), {"observed_at_ms": 89 + HOUR_MS}, {}, id="not within the hour"),
        pytest.param(mine(0, at=100), {}, {"t": {1: 5}}, id="a partition failed"),
        pytest.param(theirs(0, 1), {"others": "STOP"}, ALL, id="of a query that is dead"),
        pytest.param(theirs(0, 1), {"others": ""}, ALL, id="of a query nobody knows"),
        pytest.param(theirs(0, 1, at=200), {"others": "FAILED"}, ALL, id="whatever its clock"),
        pytest.param(theirs(0, 1), {"received_s": -31.0}, ALL, id="of one that nobody speaks of"),
        pytest.param({}, {"received_s": -31.0}, ALL, id="the other one is not spoken of"),
        pytest.param({}, {"others": "FINISHED"}, ALL, id="the other one has ended"),
        pytest.param({}, {"end": "closed"}, ALL, id="the other one is observed no more"),
        pytest.param({}, {"name": None}, ALL, id="without a name there are no others"),
    ],
)
def test_marks_decide_commits(committed: Marked, fields: dict[str, Any], offsets: Offsets) -> None:
    assert decided(committed, **fields) == CommitDecision(offsets)


@pytest.mark.parametrize(
    ("committed", "fields"),
    [
        pytest.param(mine(0, 1, offset=9, at=101), {}, id="another instance is further"),
        pytest.param(mine(7, at=101), {}, id="in another partition"),
        pytest.param(theirs(0), {"ended": True}, id="its successor has the group"),
        pytest.param(theirs(0), {"ended": True, "others": "STOP"}, id="which is dead too"),
        pytest.param({}, {"ended": True}, id="its successor is to have it"),
    ],
)
def test_a_newer_position_or_successor_stays(committed: Marked, fields: dict[str, Any]) -> None:
    assert decided(committed, **fields) == CommitDecision({}, superseded=True)


def test_of_two_live_queries_the_one_whose_mark_is_the_latest_keeps_the_group() -> None:
    both = {"t": {**mine(0, at=90)["t"], **theirs(1, at=80)["t"]}}
    assert decided(both).refused is None
    both = {"t": {**mine(0, at=80)["t"], **theirs(1, at=90)["t"]}}
    assert decided(both).refused == (
        "queries orders (id-me) and orders (id-other) would share it: it stays that of id-other;"
        " give them names of their own, or put {query_id} into mirror.group"
    )


def test_of_many_queries_that_share_a_group_a_few_are_named() -> None:
    """Thousands of queries have a reason each, so that one must not name all."""
    view = View()
    ids = [f"id-{number}" for number in range(5)]
    for query_id in ids:
        view.put(Entry(lag_event(query_id=query_id, query="x" * 1_000 + "\n"), b"", 0, 0, 0))
    called = GroupOwnership(plan(), view, "default", 30).describe(ids)
    assert called.endswith("(id-2) and 2 more")
    assert len(called) < 400
    assert called.isprintable()


@pytest.mark.parametrize(
    ("codes", "committed", "reason"),
    [
        ({"t": {0: 0, 1: 0}, "u": {0: 0}}, True, None),
        (
            {"t": {0: 29, 1: 29}, "u": {0: 29}},
            False,
            "3 of 3 partitions not committed: topic t: no right to it: the mirror needs Read on the"
            " topic; topic u: no right to it: the mirror needs Read on the topic",
        ),
        (
            {"t": {0: 0, 1: 0}},
            True,
            "1 of 3 partitions not committed: topic u: its coordinator does not report whether it"
            " was committed",
        ),
    ],
)
def test_the_error_of_each_partition_is_reported(
    codes: dict[str, dict[int, int]], committed: bool, reason: str | None
) -> None:
    outcome = commit_outcome({"t": {0: 1, 1: 1}, "u": {0: 1}}, codes)
    assert (outcome.committed, outcome.reason) == (committed, reason)


@pytest.mark.parametrize(
    ("code", "refused", "moved"),
    [
        (22, True, False),
        (27, True, False),
        (69, True, False),
        (30, False, False),
        (14, False, False),
        (15, False, True),
        (16, False, True),
    ],
)
def test_a_coordinator_that_moved_is_looked_for_and_a_group_of_others_left_alone(
    code: int, refused: bool, moved: bool
) -> None:
    outcome = group_outcome(code)
    assert outcome.reason is not None
    assert (outcome.refused, outcome.moved) == (refused, moved)


async def test_without_patterns_there_is_no_mirror() -> None:
    assert pipeline_of(Settings()).mirror is None
    assert pipeline_of(Settings(mirror=MirrorSettings(queries=["orders"]))).mirror is not None


@pytest.mark.parametrize("group", ["{query}", "{query_id}-spark", "{cluster}-{query}"])
def test_a_group_that_begins_with_what_others_name_is_refused(group: str) -> None:
    with pytest.raises(ValueError, match="it begins with a text of yours"):
        MirrorSettings(group=group)

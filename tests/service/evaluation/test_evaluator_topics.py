"""Lag where the topic or the position is not what it was: deleted, created anew, added to, gone
back."""

from __future__ import annotations

from typing import Any

import pytest

from sparklag_schemas import Observation, SourcePosition
from sparklag_service.enrichment.cluster_offsets import (
    ClusterOffsets,
    OffsetsByCluster,
    Topic,
    TopicOffsets,
)
from tests.messages import OTHER_RUN, observation, position
from tests.service.states import (
    Follower,
    evaluated,
    followed,
    lags,
    moment,
    only,
    said,
    source,
    state,
    statuses,
)


def at(*offsets: int, **fields: Any) -> Observation:
    """The query is there, in the partitions' order."""
    return observation(sources=[position({"orders": dict(enumerate(offsets))})], **fields)


def test_records_deleted_unread_are_told_and_counted() -> None:
    found = evaluated(
        state(source({"orders": {0: 5, 1: 5, 2: 5}})),
        said({0: 70, 1: 70, 2: 70}, {0: 30, 1: 6, 2: 5}),
    )
    assert statuses(found) == ["DATA_LOSS", "DATA_LOSS", "OK"]
    first = found.topics[0].partitions[0]
    assert (first.lost_records, first.lag) == (25, 65)
    assert first.reason == "25 records were deleted before they were read"
    assert (found.status, found.lost_records, found.total_lag) == ("DATA_LOSS", 26, 195)
    assert found.reason == "2 of 3 partitions: 25 records were deleted before they were read"


def test_a_log_that_was_emptied_unread_is_a_loss_too() -> None:
    found = evaluated(state(), said({0: 70}, {0: 70}))
    assert (only(found).status, only(found).lost_records) == ("DATA_LOSS", 65)


def test_a_first_offset_past_the_logs_end_is_of_another_time_and_no_loss() -> None:
    found = evaluated(state(), said({0: 70}, {0: 5_000}))
    assert (only(found).status, only(found).lag, only(found).lost_records) == ("OK", 65, None)


def test_a_topic_created_anew_is_told_by_its_id_while_the_position_stands() -> None:
    query = Follower()
    query.hear(observation())
    assert query.measure(said({0: 70})).topics[0].topic_id == "id-a"
    for _ in range(2):
        found = query.measure(said({0: 900}, topic_id="id-b"))
        assert (only(found).lag, only(found).latest_offset) == (None, None)
        assert (only(found).status, found.status, found.total_lag) == (
            "RECREATED",
            "RECREATED",
            None,
        )
        assert "recreated" in str(found.reason)
        query.restart()


def test_a_topic_created_anew_is_told_through_a_restart_without_data() -> None:
    query = followed(said({0: 70}))
    query.restart()
    query.hear(observation(cause="started", run_id=OTHER_RUN, sources=[SourcePosition(source=0)]))
    assert query.measure(said({0: 900}, topic_id="id-b")).status == "RECREATED"


def test_where_the_id_is_not_known_for_a_while_it_is_remembered() -> None:
    query = followed(said({0: 70}))
    assert query.measure({}).topics[0].topic_id == "id-a"
    assert query.measure(said({}, missing="no broker answers")).topics[0].topic_id == "id-a"
    assert query.measure(said({0: 900}, topic_id="id-b")).status == "RECREATED"


def test_after_the_topic_was_created_anew_an_id_not_known_is_not_taken_for_the_old_one() -> None:
    query = followed(said({0: 70}))
    query.measure(said({0: 900}, topic_id="id-b"))
    query.hear(at(100))
    assert query.measure({}).topics[0].topic_id is None
    assert query.measure(said({0: 900}, topic_id="id-b")).total_lag == 800


def test_an_id_that_comes_with_newer_brokers_is_no_other_topic() -> None:
    query = followed(said({0: 70}, topic_id=None), at(50))
    assert query.measure(said({0: 70})).total_lag == 20
    query.hear(at(40))
    assert query.measure(said({0: 70})).status == "REWIND"


def test_without_ids_a_log_that_ends_before_the_position_was_created_anew() -> None:
    found = evaluated(state(), said({0: 3}, topic_id=None))
    assert (only(found).lag, only(found).status, found.status) == (None, "RECREATED", "RECREATED")
    assert only(found).latest_offset == 3


def test_without_ids_the_first_position_in_a_new_topic_is_not_told_as_rewound() -> None:
    query = followed(said({0: 3}, topic_id=None))
    query.hear(at(2))
    found = query.measure(said({0: 3}, topic_id=None))
    assert (found.status, found.total_lag, only(found).rewound_from) == ("OK", 1, None)


def test_with_the_same_id_a_shorter_log_is_its_leaders_and_the_lag_unknown() -> None:
    found = evaluated(state(), said({0: 3}))
    assert (only(found).lag, only(found).status) == (None, "UNKNOWN")
    assert only(found).reason == (
        "the log ends at 3, before the processed offset 5: its leader lost records or has not"
        " caught up"
    )


def test_a_topic_that_is_gone_needs_no_words_to_be_told() -> None:
    gone: ClusterOffsets = {"orders": TopicOffsets(Topic(gone=True), 0.0)}
    assert only(evaluated(state(), {"default": gone})).reason == "topic orders does not exist"


def test_a_partition_that_is_gone_is_told_beside_those_that_are_there() -> None:
    query = state(source({"orders": {0: 5, 1: 5}}))
    found = evaluated(query, said({0: 70}, topic_id=None))
    assert (lags(found), statuses(found)) == ([65, None], ["OK", "GONE"])
    assert found.reason == "1 of 2 partitions: topic orders has no partition 1"


def test_a_partition_that_answers_is_there_though_the_list_of_them_is_older() -> None:
    query = state(source({"orders": {0: 5, 1: 5}}))
    assert lags(evaluated(query, said({0: 70, 1: 70}, partitions=1))) == [65, 65]


@pytest.mark.parametrize(
    ("offsets", "status", "reason"),
    [
        (
            said({}, topic="returns", missing="topic returns does not exist", gone=True),
            "GONE",
            "topic returns does not exist",
        ),
        (
            said({}, topic="returns", missing="no right to describe topic returns"),
            "UNKNOWN",
            "no right to describe topic returns",
        ),
        ({}, "UNKNOWN", "not measured yet"),
    ],
    ids=["gone", "forbidden", "unseen"],
)
def test_a_topic_without_any_known_partition_is_not_passed_over(
    offsets: OffsetsByCluster, status: str, reason: str
) -> None:
    query = state(source({"orders": {0: 5}}, topics=("orders", "returns")))
    found = evaluated(query, said({0: 70}, beside=offsets))
    assert (found.total_lag, found.topics[1].total_lag) == (65, None)
    assert (found.status, found.reason) == (status, reason)


def test_a_query_that_never_began_says_that_its_topic_is_not_there() -> None:
    query = state(source(None, topics=("orders",)))
    found = evaluated(query, said({}, missing="topic orders does not exist", gone=True))
    assert (found.status, found.reason) == ("GONE", "topic orders does not exist")


@pytest.mark.parametrize("processed", [{"orders": {0: 5}}, None])
def test_a_source_without_cluster_is_unknown(processed: dict[str, dict[int, int]] | None) -> None:
    query = state(source(processed, topics=("orders",), cluster=None))
    found = evaluated(query, said({0: 70}))
    assert (found.status, found.total_lag, found.topics[0].cluster) == ("UNKNOWN", None, None)
    assert "no configured cluster" in str(found.reason)


def test_an_added_partition_counts_from_its_first_offset_before_spark_plans_it() -> None:
    found = evaluated(state(), said({0: 70, 1: 40}, {0: 0, 1: 10}))
    added = found.topics[0].partitions[1]
    assert (added.processed_offset, added.lag, added.status) == (None, 30, "OK")
    assert (found.status, found.total_lag, found.unknown_partitions) == ("OK", 95, 0)
    assert found.reason == f"1 of 2 partitions: {added.reason}"


@pytest.mark.parametrize("earliest", [{0: 0}, {0: 0, 1: 41}])
def test_an_added_partition_without_first_offset_is_unknown(earliest: dict[int, int]) -> None:
    offsets = said({0: 70, 1: 40}, earliest, requested_s=99)
    added = evaluated(state(), offsets, moment(100)).topics[0].partitions[1]
    assert (added.lag, added.status, added.latest_offset) == (None, "UNKNOWN", 40)
    assert added.measured_at == moment(99).now_ms


def test_a_partition_that_the_source_names_is_counted_before_it_has_a_position() -> None:
    query = state(source({"orders": {0: 5}}, assigned={"orders": [0, 2]}))
    assert lags(evaluated(query, said({0: 70, 1: 9, 2: 40}, {2: 10}))) == [65, 30]


def test_a_topic_of_the_subscription_without_a_position_counts_whole() -> None:
    query = state(source({"orders": {0: 5}}, topics=("orders", "returns")))
    offsets = said({0: 9, 1: 8}, {0: 0, 1: 3}, topic="returns", beside=said({0: 70}))
    found = evaluated(query, offsets)
    assert (lags(found, 1), found.topics[1].total_lag, found.total_lag) == ([9, 5], 14, 79)


def test_an_added_partition_is_ordinary_once_spark_has_planned_it() -> None:
    query = followed(said({0: 70, 1: 40}, {0: 0, 1: 10}))
    query.hear(at(5, 12))
    found = query.measure(said({0: 70, 1: 40}, {0: 0, 1: 10}))
    assert (lags(found), found.reason) == ([65, 28], None)


def rewound(to: int = 20) -> Follower:
    """A query that was at 50 and has gone back, in a new run."""
    query = followed(said({0: 70}), at(50))
    query.hear(observation(cause="started", run_id=OTHER_RUN, sources=[SourcePosition(source=0)]))
    assert query.measure(said({0: 70})).status == "OK"
    query.hear(at(to, run_id=OTHER_RUN))
    return query


def test_a_query_that_went_back_says_from_where_until_it_is_there_again() -> None:
    query = rewound(to=20)
    for reached in (20, 30, 49):
        query.hear(at(reached, run_id=OTHER_RUN))
        found = query.measure(said({0: 70}))
        assert (only(found).status, only(found).rewound_from) == ("REWIND", 50)
        assert (found.status, found.total_lag) == ("REWIND", 70 - reached)
        assert only(found).reason == f"went back from offset 50, now at offset {reached}"
        query.restart()
    query.hear(at(50, run_id=OTHER_RUN))
    found = query.measure(said({0: 70}))
    assert (found.status, only(found).rewound_from) == ("OK", None)


@pytest.mark.parametrize(
    ("between", "status"),
    [
        ({}, "UNKNOWN"),
        (said({0: 70}, requested_s=1), "UNKNOWN"),
        (said({}, missing="topic orders does not exist", gone=True), "GONE"),
        (said({0: 70}, {0: 60}), "DATA_LOSS"),
        (said({0: 3}), "UNKNOWN"),
    ],
    ids=["not measured", "old", "gone", "loss", "short"],
)
def test_nothing_between_makes_it_forget_a_rewind(between: OffsetsByCluster, status: str) -> None:
    query = rewound()
    assert only(query.measure(said({0: 70}))).rewound_from == 50
    found = query.measure(between)
    assert (found.status, only(found).rewound_from) == (status, 50)
    query.restart()
    assert query.measure(said({0: 70})).status == "REWIND"


@pytest.mark.parametrize(
    ("first_id", "then_id", "status"),
    [
        ("id-a", "id-a", "REWIND"),
        (None, "id-a", "REWIND"),
        ("id-a", None, "REWIND"),
        (None, None, "REWIND"),
        ("id-a", "id-b", "OK"),
    ],
)
def test_only_in_one_and_the_same_topic_are_older_offsets_behind(
    first_id: str | None, then_id: str | None, status: str
) -> None:
    query = followed(said({0: 70}, topic_id=first_id), at(50))
    query.hear(at(20))
    found = query.measure(said({0: 70}, topic_id=then_id))
    assert (found.status, found.total_lag) == (status, 50)


def test_a_query_that_goes_back_twice_says_the_farthest() -> None:
    query = rewound(to=40)
    query.measure(said({0: 70}))
    query.hear(at(10, run_id=OTHER_RUN))
    assert only(query.measure(said({0: 70}))).rewound_from == 50


def test_only_the_partition_that_went_back_says_so() -> None:
    query = followed(said({0: 70, 1: 70}), at(50, 50))
    query.hear(at(51, 0))
    assert statuses(query.measure(said({0: 70, 1: 70}))) == ["OK", "REWIND"]

"""Lag from positions and offsets: what is not known is null, never 0."""

from __future__ import annotations

from typing import Any

import pytest

from sparklag_service.enrichment.cluster_offsets import OffsetsByCluster
from sparklag_service.tracking.query_state import restored
from tests.messages import OTHER_RUN, RUN_ID, observation, position
from tests.service.states import (
    NO_LEADER,
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


def test_lag_is_latest_minus_processed() -> None:
    found = evaluated(state(source({"orders": {0: 5, 1: 7}})), said({0: 70, 1: 7}))
    assert lags(found) == [65, 0]
    assert (found.total_lag, found.max_lag, found.unknown_partitions) == (65, 65, 0)
    assert (found.status, found.reason, found.lost_records) == ("OK", None, 0)


def test_an_unknown_partition_is_left_out_of_the_sum_and_counted() -> None:
    found = evaluated(
        state(source({"orders": {0: 5, 1: 7}})), said({0: 70}, unknown={1: NO_LEADER})
    )
    unknown = found.topics[0].partitions[1]
    assert (unknown.lag, unknown.latest_offset) == (None, None)
    assert (unknown.status, unknown.reason) == ("UNKNOWN", NO_LEADER)
    assert (found.total_lag, found.unknown_partitions) == (65, 1)
    assert found.reason == "1 of 2 partitions: the partition has no leader"


def test_before_kafka_was_asked_the_lag_is_unknown() -> None:
    found = evaluated(state(), {})
    assert (only(found).status, only(found).reason) == ("UNKNOWN", "not measured yet")
    assert (only(found).processed_offset, found.total_lag) == (5, None)


def test_a_query_without_a_position_shows_its_partitions_with_unknown_lag() -> None:
    found = evaluated(state(source(None, topics=("orders",))), said({0: 70}, {0: 0}))
    assert only(found).latest_offset == 70
    assert (only(found).lag, only(found).reason) == (None, "no batch has completed yet")
    assert (found.status, found.reason) == ("UNKNOWN", "no batch has completed yet")


def test_a_query_that_was_not_measured_and_has_no_position_says_the_latter() -> None:
    found = evaluated(state(source(None, topics=("orders",))), {})
    assert (found.topics[0].partitions, found.total_lag) == ([], None)
    assert (found.status, found.reason) == ("UNKNOWN", "no batch has completed yet")


def test_a_query_that_matches_no_partition_has_no_lag_of_zero() -> None:
    found = evaluated(state(source({})), {})
    assert (found.total_lag, found.status) == (None, "UNKNOWN")
    assert found.reason == "the query reads no partition"


def test_a_topic_read_by_two_sources_is_counted_for_each() -> None:
    query = state(source({"orders": {0: 5}}), source({"orders": {0: 60}}, source=1))
    found = evaluated(query, said({0: 70}))
    assert [(t.source, t.total_lag) for t in found.topics] == [(0, 65), (1, 10)]
    assert (found.total_lag, found.max_lag) == (75, 65)


def test_read_committed_is_measured_to_the_last_stable_offset() -> None:
    query = state(source({"orders": {0: 5}}, isolation_level="read_committed"))
    offsets = said({0: 6}, level="read_committed", beside=said({0: 70}))
    found = evaluated(query, offsets)
    assert (found.total_lag, found.topics[0].isolation_level) == (1, "read_committed")


def test_each_source_is_measured_on_its_own_cluster() -> None:
    query = state(source({"orders": {0: 5}}), source({"orders": {0: 5}}, source=1, cluster="east"))
    found = evaluated(query, said({0: 1_000}, cluster="east", beside=said({0: 70})))
    assert [(t.cluster, t.total_lag) for t in found.topics] == [("default", 65), ("east", 995)]


def test_what_the_event_repeats_of_the_query() -> None:
    query = state(
        source({"orders": {0: 5}}, planned={"orders": {0: 8}}), batch_id=3, observation_offset=9
    )
    found = evaluated(query, said({0: 70}, {0: 1}), cause="progress")
    assert (found.cause, found.measured_by, found.event_id) == ("progress", "service", "id")
    assert (found.batch_id, found.observation_offset, found.observed_at) == (3, 9, 1_000)
    assert (only(found).planned_offset, only(found).earliest_offset) == (8, 1)
    assert found.measured_at == moment().now_ms


def test_an_offset_that_was_just_not_read_again_yet_counts_and_tells_its_age() -> None:
    found = evaluated(state(), said({0: 70}, requested_s=98.5), moment(100, requested_s=99))
    assert (only(found).lag, only(found).status, only(found).reason) == (65, "OK", None)
    assert only(found).measured_at == found.measured_at - 1_500
    assert (found.status, found.reason) == ("OK", None)


def test_an_offset_of_this_pass_has_no_age_of_its_own() -> None:
    found = evaluated(state(), said({0: 70}, requested_s=99), moment(100, requested_s=99))
    assert only(found).measured_at is None


def test_an_offset_that_could_not_be_read_again_says_why_and_still_counts() -> None:
    offsets = said({0: 70}, unknown={0: NO_LEADER}, requested_s=60)
    found = evaluated(state(), offsets, moment(100))
    assert (only(found).lag, only(found).status) == (65, "OK")
    assert only(found).reason == "the partition has no leader: its latest offset is 40 s old"
    assert only(found).measured_at == found.measured_at - 40_000
    assert found.reason == f"1 of 1 partitions: {only(found).reason}"


def test_a_new_answer_ends_the_trouble() -> None:
    offsets = said({0: 70}, unknown={0: NO_LEADER}, requested_s=100)
    assert only(evaluated(state(), offsets, moment(100))).reason is None


@pytest.mark.parametrize(
    ("unknown", "reason"),
    [
        ({0: NO_LEADER}, "the partition has no leader: its latest offset is 61 s old"),
        ({}, "no answer yet: its latest offset is 61 s old"),
    ],
)
def test_an_offset_that_is_too_old_does_not_count(unknown: dict[int, str], reason: str) -> None:
    found = evaluated(state(), said({0: 70}, unknown=unknown, requested_s=39), moment(100))
    assert (only(found).lag, only(found).latest_offset) == (None, None)
    assert (only(found).status, only(found).reason) == ("UNKNOWN", reason)
    assert (found.total_lag, found.unknown_partitions) == (None, 1)


@pytest.mark.parametrize("topic_id", ["id-a", None])
def test_an_old_offset_before_the_position_says_nothing_of_the_topic(topic_id: str | None) -> None:
    found = evaluated(state(), said({0: 3}, topic_id=topic_id, requested_s=99), moment(100))
    assert (only(found).status, only(found).lag) == ("UNKNOWN", None)
    assert only(found).reason == "latest offset 3 was read before the query reached 5"
    assert only(found).measured_at == found.measured_at - 1_000


def test_a_topic_without_the_right_to_describe_it_is_unknown_and_not_gone() -> None:
    missing = "no right to describe topic orders"
    found = evaluated(state(), said({}, missing=missing))
    assert (only(found).status, only(found).reason) == ("UNKNOWN", missing)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\nboom\r\n\tat org.apache.spark", "boom"),
        ("", "no error message"),
        ("\n", "no error message"),
    ],
)
def test_a_query_that_failed_says_with_what_on_one_line(text: str, shown: str) -> None:
    found = evaluated(state(ended=True, exception=text), said({0: 70}))
    assert (found.status, found.reason) == ("FAILED", f"the query failed: {shown}")
    assert found.total_lag == 65


@pytest.mark.parametrize(
    ("fields", "status", "reason"),
    [
        ({"ended": True}, "FINISHED", "the query was stopped"),
        ({"ended": True, "driver_end": "stopped"}, "FINISHED", "the driver stopped Spark"),
        ({"ended": True, "driver_end": "exited"}, "FINISHED", "the driver process exited"),
        ({"ended": True, "driver_end": "of a later version"}, "FINISHED", "the query was stopped"),
        (
            {"ended": True, "driver_end": "exited", "exception": "ValueError: no"},
            *("FAILED", "the driver failed: ValueError: no"),
        ),
        (
            {"driver_end": "closed"},
            "UNKNOWN",
            "no longer observed: the handle was closed; the position may be out of date",
        ),
    ],
)
@pytest.mark.parametrize("silent", [False, True])
def test_how_a_driver_ended_its_reports_is_told_and_no_silence_is(
    fields: dict[str, Any], status: str, reason: str, silent: bool
) -> None:
    found = evaluated(state(**fields), said({0: 70}), silent=silent)
    assert (found.status, found.reason) == (status, reason)
    again = evaluated(restored(found), said({0: 70}), silent=silent)
    assert (again.status, again.reason) == (status, reason)


@pytest.mark.parametrize(
    ("fields", "silent", "status"),
    [
        ({"ended": True, "exception": "boom", "other_run_id": OTHER_RUN}, True, "FAILED"),
        ({"ended": True, "other_run_id": OTHER_RUN}, True, "FINISHED"),
        ({"other_run_id": OTHER_RUN}, True, "STOP"),
        ({"other_run_id": OTHER_RUN}, False, "CONFLICT"),
        ({}, True, "STOP"),
        ({}, False, "DATA_LOSS"),
    ],
)
def test_what_is_known_of_the_query_comes_before_what_is_of_its_partitions(
    fields: dict[str, Any], silent: bool, status: str
) -> None:
    found = evaluated(state(**fields), said({0: 70}, {0: 30}), silent=silent)
    assert (found.status, found.total_lag, only(found).status) == (status, 65, "DATA_LOSS")
    assert found.reason is not None


def test_two_runs_name_each_other() -> None:
    found = evaluated(state(other_run_id=OTHER_RUN), said({0: 70}))
    assert (found.other_run_id, found.run_id) == (OTHER_RUN, RUN_ID)
    assert OTHER_RUN in str(found.reason)
    assert RUN_ID in str(found.reason)


def test_the_worst_partition_names_the_state_of_the_query() -> None:
    query = state(source({"orders": {0: 5, 1: 5, 2: 5, 3: 5}}))
    offsets = said({0: 70, 1: 70}, {0: 30}, unknown={1: NO_LEADER, 2: "x"}, partitions=3)
    found = evaluated(query, offsets)
    assert statuses(found) == ["DATA_LOSS", "OK", "UNKNOWN", "GONE"]
    assert found.status == "DATA_LOSS"


def test_the_version_rises_also_where_the_clock_steps_back() -> None:
    query = Follower()
    query.hear(observation())
    first = query.measure(said({0: 70}), moment(100))
    second = query.measure(said({0: 70}, requested_s=40), moment(40))
    third = query.measure(said({0: 70}, requested_s=41), moment(41))
    assert first.version < second.version < third.version
    assert second.measured_at == first.measured_at + 1
    query.hear(observation(observed_at=first.observed_at + 5))
    fourth = query.measure(said({0: 70}, requested_s=42), moment(42))
    assert third.version < fourth.version
    assert fourth.measured_at == moment(42).now_ms


def test_a_partition_without_lag_that_did_not_change_is_the_same_object() -> None:
    query = Follower()
    processed = {"orders": {0: 70, 1: 70, 2: 70}}
    query.hear(observation(sources=[position(processed)]))
    first = query.measure(said({0: 70, 1: 70, 2: 70}, {0: 0, 1: 0, 2: 0}))
    query.hear(observation(cause="idle", sources=[position(processed)]))
    second = query.measure(
        said({0: 70, 1: 71, 2: 70}, {0: 0, 1: 0, 2: 1}, requested_s=101), moment(101)
    )
    pairs = zip(first.topics[0].partitions, second.topics[0].partitions, strict=True)
    assert [old is new for old, new in pairs] == [True, False, False]


def test_a_new_plan_makes_a_partition_another() -> None:
    query = followed(said({0: 70}))
    query.hear(observation(sources=[position(planned={"orders": {0: 8}})]))
    assert only(query.measure(said({0: 70}))).planned_offset == 8


@pytest.mark.parametrize(
    "then",
    [
        {},
        said({0: 70}, requested_s=99),
        said({0: 70}, topic_id="id-b"),
        said({}, missing="topic orders does not exist", gone=True),
        said({0: 70}, {0: 6}),
    ],
    ids=["not measured", "old", "created anew", "gone", "loss"],
)
def test_a_partition_in_another_state_is_not_the_same(then: OffsetsByCluster) -> None:
    query = Follower()
    query.hear(observation())
    first = query.measure(said({0: 70}))
    assert only(query.measure(then)) != only(first)


BOTH = {"orders": {0: 70}, "processed-offsets": {0: 9}}


@pytest.mark.parametrize(
    ("read", "fields", "warned"),
    [
        (BOTH, {}, True),
        ({"orders": {0: 70}}, {}, False),
        # Meant: it reads nothing else, or names it.
        ({"processed-offsets": {0: 9}}, {}, False),
        (BOTH, {"topics": ("orders", "processed-offsets")}, False),
        # Another cluster's, which carries none of ours.
        (BOTH, {"cluster": "east"}, False),
    ],
)
def test_a_query_whose_pattern_matches_a_topic_of_sparklags_is_told_so(
    read: dict[str, dict[int, int]], fields: dict[str, Any], warned: bool
) -> None:
    found = evaluated(state(source(read, **fields)), said({0: 70}))
    assert ("processed-offsets, a topic of sparklag's own" in (found.reason or "")) is warned
    assert (found.status == "WARN") is warned


def test_a_consumer_group_adds_nothing_to_sparklags_topics() -> None:
    found = evaluated(state(source(BOTH), origin="group", run_id=None), said({0: 70}))
    assert "sparklag's own" not in (found.reason or "")

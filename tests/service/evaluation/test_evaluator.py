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
    offsets_at,
    only,
    source,
    state,
    statuses,
)


def test_lag_is_latest_minus_processed() -> None:
    result = evaluated(state(source({"orders": {0: 5, 1: 7}})), offsets_at({0: 70, 1: 7}))
    assert lags(result) == [65, 0]
    assert (result.total_lag, result.max_lag, result.unknown_partitions) == (65, 65, 0)
    assert (result.status, result.reason, result.lost_records) == ("OK", None, 0)


def test_an_unknown_partition_is_left_out_of_the_sum_and_counted() -> None:
    result = evaluated(
        state(source({"orders": {0: 5, 1: 7}})), offsets_at({0: 70}, unknown={1: NO_LEADER})
    )
    unknown = result.topics[0].partitions[1]
    assert (unknown.lag, unknown.latest_offset) == (None, None)
    assert (unknown.status, unknown.reason) == ("UNKNOWN", NO_LEADER)
    assert (result.total_lag, result.unknown_partitions) == (65, 1)
    assert result.reason == "1 of 2 partitions: the partition has no leader"


def test_before_kafka_was_requested_the_lag_is_unknown() -> None:
    result = evaluated(state(), {})
    assert (only(result).status, only(result).reason) == ("UNKNOWN", "not measured yet")
    assert (only(result).processed_offset, result.total_lag) == (5, None)


def test_a_query_without_a_position_shows_its_partitions_with_unknown_lag() -> None:
    result = evaluated(state(source(None, topics=["orders"])), offsets_at({0: 70}, {0: 0}))
    assert only(result).latest_offset == 70
    assert (only(result).lag, only(result).reason) == (None, "no batch has completed yet")
    assert (result.status, result.reason) == ("UNKNOWN", "no batch has completed yet")


def test_a_query_without_a_position_is_ok_on_an_empty_topic() -> None:
    query = state(source(None, topics=["orders"]))
    result = evaluated(query, offsets_at({0: 70, 1: 9}, {0: 70, 1: 9}))
    assert (result.status, result.reason, result.total_lag) == ("OK", None, 0)
    assert evaluated(query, offsets_at({0: 70, 1: 9}, {0: 70, 1: 8})).status == "UNKNOWN"


def test_a_query_that_was_not_measured_and_has_no_position_reports_the_latter() -> None:
    result = evaluated(state(source(None, topics=["orders"])), {})
    assert (result.topics[0].partitions, result.total_lag) == ([], None)
    assert (result.status, result.reason) == ("UNKNOWN", "no batch has completed yet")


def test_a_query_that_matches_no_partition_has_no_lag_of_zero() -> None:
    result = evaluated(state(source({})), {})
    assert (result.total_lag, result.status) == (None, "UNKNOWN")
    assert result.reason == "the query reads no partition"


def test_a_topic_read_by_two_sources_is_counted_for_each() -> None:
    query = state(source({"orders": {0: 5}}), source({"orders": {0: 60}}, source=1))
    result = evaluated(query, offsets_at({0: 70}))
    assert [(t.source, t.total_lag) for t in result.topics] == [(0, 65), (1, 10)]
    assert (result.total_lag, result.max_lag) == (75, 65)


def test_read_committed_is_measured_to_the_last_stable_offset() -> None:
    query = state(source({"orders": {0: 5}}, isolation_level="read_committed"))
    offsets = offsets_at({0: 6}, level="read_committed", beside=offsets_at({0: 70}))
    result = evaluated(query, offsets)
    assert (result.total_lag, result.topics[0].isolation_level) == (1, "read_committed")


def test_each_source_is_measured_on_its_own_cluster() -> None:
    query = state(source({"orders": {0: 5}}), source({"orders": {0: 5}}, source=1, cluster="east"))
    result = evaluated(query, offsets_at({0: 1_000}, cluster="east", beside=offsets_at({0: 70})))
    assert [(t.cluster, t.total_lag) for t in result.topics] == [("default", 65), ("east", 995)]


def test_what_the_event_repeats_of_the_query() -> None:
    query = state(
        source({"orders": {0: 5}}, planned={"orders": {0: 8}}), batch_id=3, observation_offset=9
    )
    result = evaluated(query, offsets_at({0: 70}, {0: 1}), cause="progress")
    assert (result.cause, result.measured_by, result.event_id) == ("progress", "service", "id")
    assert (result.batch_id, result.observation_offset, result.observed_at) == (3, 9, 1_000)
    assert (only(result).planned_offset, only(result).earliest_offset) == (8, 1)
    assert result.measured_at == moment().now_ms


def test_an_offset_that_was_just_not_read_again_yet_counts_and_reports_its_age() -> None:
    result = evaluated(state(), offsets_at({0: 70}, requested_s=98.5), moment(100, requested_s=99))
    assert (only(result).lag, only(result).status, only(result).reason) == (65, "OK", None)
    assert only(result).measured_at == result.measured_at - 1_500
    assert (result.status, result.reason) == ("OK", None)
    result = evaluated(state(), offsets_at({0: 70}, requested_s=99), moment(100, requested_s=99))
    assert only(result).measured_at is None, "of this pass"


def test_an_offset_that_could_not_be_read_again_reports_why_and_still_counts() -> None:
    offsets = offsets_at({0: 70}, unknown={0: NO_LEADER}, requested_s=60)
    result = evaluated(state(), offsets, moment(100))
    assert (only(result).lag, only(result).status) == (65, "OK")
    assert only(result).reason == "the partition has no leader: its latest offset is 40 s old"
    assert only(result).measured_at == result.measured_at - 40_000
    assert result.reason == f"1 of 1 partitions: {only(result).reason}"
    answered = offsets_at({0: 70}, unknown={0: NO_LEADER}, requested_s=100)
    assert only(evaluated(state(), answered, moment(100))).reason is None


@pytest.mark.parametrize(
    ("unknown", "reason"),
    [
        ({0: NO_LEADER}, "the partition has no leader: its latest offset is 61 s old"),
        ({}, "no answer yet: its latest offset is 61 s old"),
    ],
)
def test_an_offset_that_is_too_old_does_not_count(unknown: dict[int, str], reason: str) -> None:
    result = evaluated(state(), offsets_at({0: 70}, unknown=unknown, requested_s=39), moment(100))
    assert (only(result).lag, only(result).latest_offset) == (None, None)
    assert (only(result).status, only(result).reason) == ("UNKNOWN", reason)
    assert (result.total_lag, result.unknown_partitions) == (None, 1)


@pytest.mark.parametrize("topic_id", ["id-a", None])
def test_an_old_offset_before_the_position_is_no_sign_of_a_new_topic(topic_id: str | None) -> None:
    result = evaluated(state(), offsets_at({0: 3}, topic_id=topic_id, requested_s=99), moment(100))
    assert (only(result).status, only(result).lag) == ("UNKNOWN", None)
    assert only(result).reason == "latest offset 3 was read before the query reached 5"
    assert only(result).measured_at == result.measured_at - 1_000


def test_a_topic_without_the_right_to_describe_it_is_unknown_and_not_gone() -> None:
    missing = "no right to describe topic orders"
    result = evaluated(state(), offsets_at({}, missing=missing))
    assert (only(result).status, only(result).reason) == ("UNKNOWN", missing)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\nboom\r\n\tat org.apache.spark", "boom"),
        ("", "no error message"),
        ("\n", "no error message"),
    ],
)
def test_a_query_that_failed_reports_with_what_on_one_line(text: str, shown: str) -> None:
    result = evaluated(state(ended=True, exception=text), offsets_at({0: 70}))
    assert (result.status, result.reason) == ("FAILED", f"the query failed: {shown}")
    assert result.total_lag == 65


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
def test_how_a_driver_ended_its_reports_is_reported_and_no_silence_is(
    fields: dict[str, Any], status: str, reason: str, silent: bool
) -> None:
    result = evaluated(state(**fields), offsets_at({0: 70}), silent=silent)
    assert (result.status, result.reason) == (status, reason)
    again = evaluated(restored(result), offsets_at({0: 70}), silent=silent)
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
    result = evaluated(state(**fields), offsets_at({0: 70}, {0: 30}), silent=silent)
    assert (result.status, result.total_lag, only(result).status) == (status, 40, "DATA_LOSS")
    assert result.reason is not None


def test_two_runs_name_each_other() -> None:
    result = evaluated(state(other_run_id=OTHER_RUN), offsets_at({0: 70}))
    assert (result.other_run_id, result.run_id) == (OTHER_RUN, RUN_ID)
    assert OTHER_RUN in str(result.reason)
    assert RUN_ID in str(result.reason)


def test_the_worst_partition_names_the_state_of_the_query() -> None:
    query = state(source({"orders": {0: 5, 1: 5, 2: 5, 3: 5}}))
    offsets = offsets_at({0: 70, 1: 70}, {0: 30}, unknown={1: NO_LEADER, 2: "x"}, partitions=4)
    result = evaluated(query, offsets)
    assert statuses(result) == ["DATA_LOSS", "OK", "UNKNOWN", "UNKNOWN"]
    assert result.status == "DATA_LOSS"


def test_the_version_rises_also_where_the_clock_steps_back() -> None:
    query = Follower()
    query.hear(observation())
    first = query.measure(offsets_at({0: 70}), moment(100))
    second = query.measure(offsets_at({0: 70}, requested_s=40), moment(40))
    third = query.measure(offsets_at({0: 70}, requested_s=41), moment(41))
    assert first.version < second.version < third.version
    assert second.measured_at == first.measured_at + 1
    query.hear(observation(observed_at=first.observed_at + 5))
    fourth = query.measure(offsets_at({0: 70}, requested_s=42), moment(42))
    assert third.version < fourth.version
    assert fourth.measured_at == moment(42).now_ms


def test_a_partition_without_lag_that_did_not_change_is_the_same_object() -> None:
    query = Follower()
    processed = {"orders": {0: 70, 1: 70, 2: 70}}
    query.hear(observation(sources=[position(processed)]))
    first = query.measure(offsets_at({0: 70, 1: 70, 2: 70}, {0: 0, 1: 0, 2: 0}))
    query.hear(observation(cause="idle", sources=[position(processed)]))
    second = query.measure(
        offsets_at({0: 70, 1: 71, 2: 70}, {0: 0, 1: 0, 2: 1}, requested_s=101), moment(101)
    )
    pairs = zip(first.topics[0].partitions, second.topics[0].partitions, strict=True)
    assert [old is new for old, new in pairs] == [True, False, False]


def test_a_new_plan_makes_a_partition_another() -> None:
    query = followed(offsets_at({0: 70}))
    query.hear(observation(sources=[position(planned={"orders": {0: 8}})]))
    assert only(query.measure(offsets_at({0: 70}))).planned_offset == 8


@pytest.mark.parametrize(
    "then",
    [
        {},
        offsets_at({0: 70}, requested_s=99),
        offsets_at({0: 70}, topic_id="id-b"),
        offsets_at({}, missing="topic orders does not exist", gone=True),
        offsets_at({0: 70}, {0: 6}),
    ],
    ids=["not measured", "old", "created anew", "gone", "loss"],
)
def test_a_partition_in_another_state_is_not_the_same(then: OffsetsByCluster) -> None:
    query = Follower()
    query.hear(observation())
    first = query.measure(offsets_at({0: 70}))
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
def test_a_query_whose_pattern_matches_a_topic_of_sparklags_is_reported_so(
    read: dict[str, dict[int, int]], fields: dict[str, Any], warned: bool
) -> None:
    result = evaluated(state(source(read, **fields)), offsets_at({0: 70}))
    assert ("processed-offsets, a topic of sparklag's own" in (result.reason or "")) is warned
    assert (result.status == "WARN") is warned


def test_a_consumer_group_adds_nothing_to_sparklags_topics() -> None:
    result = evaluated(state(source(BOTH), origin="group", run_id=None), offsets_at({0: 70}))
    assert "sparklag's own" not in (result.reason or "")

"""Lag from positions and offsets: what is not known is null, never 0."""

from __future__ import annotations

import random
from typing import Any

import pytest

from sparklag_schemas import LagEvent, PartitionLag, SourcePosition, decode_lag_event, encode
from sparklag_service.offsets import ClusterOffsets, Latest, Offsets, Topic
from tests.messages import RUN_ID, observation, position
from tests.service.states import Follower, evaluated, moment, partition, said, source, state

OTHER_RUN = "79f1bf68-0000-4000-8000-000000000002"
NO_LEADER = "the partition has no leader"


def only(found: LagEvent) -> PartitionLag:
    ((only_one,),) = [topic.partitions for topic in found.topics]
    return only_one


def lags(found: LagEvent, topic: int = 0) -> list[int | None]:
    return [partition.lag for partition in found.topics[topic].partitions]


def statuses(found: LagEvent, topic: int = 0) -> list[str]:
    return [partition.status for partition in found.topics[topic].partitions]


# The sum.


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


def test_when_nothing_is_known_the_total_is_null_and_not_zero() -> None:
    found = evaluated(state(), said({}, unknown={0: "no broker answers"}))
    assert (found.total_lag, found.max_lag, found.status) == (None, None, "UNKNOWN")


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
    assert found.reason == "there is no partition that it reads"


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


# Records that were deleted.


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


# A latest offset that could not be read again.


def test_an_offset_that_was_just_not_read_again_yet_counts_and_tells_its_age() -> None:
    found = evaluated(state(), said({0: 70}, asked_s=98.5), moment(100, asked_s=99))
    assert (only(found).lag, only(found).status, only(found).reason) == (65, "OK", None)
    assert only(found).measured_at == found.measured_at - 1_500
    assert (found.status, found.reason) == ("OK", None)


def test_an_offset_of_this_pass_has_no_age_of_its_own() -> None:
    found = evaluated(state(), said({0: 70}, asked_s=99), moment(100, asked_s=99))
    assert only(found).measured_at is None


def test_an_offset_that_could_not_be_read_again_says_why_and_still_counts() -> None:
    offsets = said({0: 70}, unknown={0: NO_LEADER}, asked_s=60)
    found = evaluated(state(), offsets, moment(100))
    assert (only(found).lag, only(found).status) == (65, "OK")
    assert only(found).reason == "the partition has no leader: its latest offset is 40 s old"
    assert only(found).measured_at == found.measured_at - 40_000
    assert found.reason == f"1 of 1 partitions: {only(found).reason}"


def test_a_new_answer_ends_the_trouble() -> None:
    offsets = said({0: 70}, unknown={0: NO_LEADER}, asked_s=100)
    assert only(evaluated(state(), offsets, moment(100))).reason is None


@pytest.mark.parametrize(
    ("unknown", "reason"),
    [
        ({0: NO_LEADER}, "the partition has no leader: its latest offset is 61 s old"),
        ({}, "no answer yet: its latest offset is 61 s old"),
    ],
)
def test_an_offset_that_is_too_old_does_not_count(unknown: dict[int, str], reason: str) -> None:
    found = evaluated(state(), said({0: 70}, unknown=unknown, asked_s=39), moment(100))
    assert (only(found).lag, only(found).latest_offset) == (None, None)
    assert (only(found).status, only(found).reason) == ("UNKNOWN", reason)
    assert (found.total_lag, found.unknown_partitions) == (None, 1)


@pytest.mark.parametrize("topic_id", ["id-a", None])
def test_an_old_offset_before_the_position_says_nothing_of_the_topic(topic_id: str | None) -> None:
    found = evaluated(state(), said({0: 3}, topic_id=topic_id, asked_s=99), moment(100))
    assert (only(found).status, only(found).lag) == ("UNKNOWN", None)
    assert only(found).reason == "its latest offset 3 was read before the position 5"
    assert only(found).measured_at == found.measured_at - 1_000


def test_a_topic_without_the_right_to_describe_it_is_unknown_and_not_gone() -> None:
    missing = "no right to describe topic orders"
    found = evaluated(state(), said({}, missing=missing))
    assert (only(found).status, only(found).reason) == ("UNKNOWN", missing)


# The topic is another, or none.


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
        assert found.reason is not None
        assert "created anew" in found.reason
        query.restart()


@pytest.mark.parametrize("reached", [3, 90], ids=["shorter", "longer"])
def test_a_query_that_reads_on_in_the_new_topic_is_measured_in_it(reached: int) -> None:
    query = Follower()
    query.hear(observation())
    query.measure(said({0: 70}))
    query.measure(said({0: 100}, topic_id="id-b"))
    later = observation(observed_at=1_790_000_009_000, sources=[position({"orders": {0: reached}})])
    query.hear(later)
    found = query.measure(said({0: 100}, topic_id="id-b"))
    assert (only(found).status, found.status, found.total_lag) == ("OK", "OK", 100 - reached)
    assert (found.topics[0].topic_id, only(found).rewound_from) == ("id-b", None)


def test_a_topic_created_anew_is_told_through_a_restart_without_data() -> None:
    query = Follower()
    query.hear(observation())
    query.measure(said({0: 70}))
    query.restart()
    query.hear(observation(cause="started", run_id=OTHER_RUN, sources=[SourcePosition(source=0)]))
    assert query.measure(said({0: 900}, topic_id="id-b")).status == "RECREATED"


def test_where_the_id_is_not_known_for_a_while_it_is_remembered() -> None:
    query = Follower()
    query.hear(observation())
    query.measure(said({0: 70}))
    assert query.measure({}).topics[0].topic_id == "id-a"
    assert query.measure(said({}, missing="no broker answers")).topics[0].topic_id == "id-a"
    assert query.measure(said({0: 900}, topic_id="id-b")).status == "RECREATED"


def test_after_the_topic_was_created_anew_an_id_not_known_is_not_taken_for_the_old_one() -> None:
    query = Follower()
    query.hear(observation())
    query.measure(said({0: 70}))
    query.measure(said({0: 900}, topic_id="id-b"))
    query.hear(observation(sources=[position({"orders": {0: 100}})]))
    assert query.measure({}).topics[0].topic_id is None
    assert query.measure(said({0: 900}, topic_id="id-b")).total_lag == 800


def test_an_id_that_comes_with_newer_brokers_is_no_other_topic() -> None:
    query = Follower()
    query.hear(observation(sources=[position({"orders": {0: 50}})]))
    query.measure(said({0: 70}, topic_id=None))
    assert query.measure(said({0: 70})).total_lag == 20
    query.hear(observation(sources=[position({"orders": {0: 40}})]))
    assert query.measure(said({0: 70})).status == "REWIND"


def test_without_ids_a_log_that_ends_before_the_position_was_created_anew() -> None:
    found = evaluated(state(), said({0: 3}, topic_id=None))
    assert (only(found).lag, only(found).status, found.status) == (None, "RECREATED", "RECREATED")
    assert only(found).latest_offset == 3


def test_without_ids_the_first_position_in_a_new_topic_is_not_told_as_rewound() -> None:
    query = Follower()
    query.hear(observation())
    query.measure(said({0: 3}, topic_id=None))
    query.hear(observation(sources=[position({"orders": {0: 2}})]))
    found = query.measure(said({0: 3}, topic_id=None))
    assert (found.status, found.total_lag, only(found).rewound_from) == ("OK", 1, None)


def test_with_the_same_id_a_shorter_log_is_its_leaders_and_the_lag_unknown() -> None:
    found = evaluated(state(), said({0: 3}))
    assert (only(found).lag, only(found).status) == (None, "UNKNOWN")
    assert only(found).reason == (
        "the log ends at 3, before the processed offset 5: its leader has lost records, or is new"
    )


def test_a_topic_that_is_gone_is_told_with_the_position_it_had() -> None:
    query = Follower()
    query.hear(observation())
    query.measure(said({0: 70}))
    found = query.measure(said({}, missing="topic orders does not exist", gone=True))
    assert (only(found).processed_offset, only(found).lag) == (5, None)
    assert (only(found).status, found.status) == ("GONE", "GONE")
    assert found.reason == "1 of 1 partitions: topic orders does not exist"
    assert only(query.measure(said({0: 70}))).lag == 65


def test_a_topic_that_is_gone_needs_no_words_to_be_told() -> None:
    assert only(evaluated(state(), {"default": gone()})).reason == "topic orders does not exist"


def gone() -> ClusterOffsets:
    return ClusterOffsets(topics={"orders": Topic(gone=True)})


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
    offsets: Offsets, status: str, reason: str
) -> None:
    query = state(source({"orders": {0: 5}}, topics=("orders", "returns")))
    both = {"default": ClusterOffsets(topics=dict(offsets["default"].topics))} if offsets else {}
    found = evaluated(query, said({0: 70}, beside=both))
    assert (found.total_lag, found.topics[1].total_lag) == (65, None)
    assert (found.status, found.reason) == (status, reason)


def test_a_query_that_never_began_says_that_its_topic_is_not_there() -> None:
    query = state(source(None, topics=("orders",)))
    found = evaluated(query, said({}, missing="topic orders does not exist", gone=True))
    assert (found.status, found.reason) == ("GONE", "topic orders does not exist")


@pytest.mark.parametrize("processed", [{"orders": {0: 5}}, None])
def test_a_source_on_no_configured_cluster_is_unknown(
    processed: dict[str, dict[int, int]] | None,
) -> None:
    query = state(source(processed, topics=("orders",), cluster=None))
    found = evaluated(query, said({0: 70}))
    assert (found.status, found.total_lag, found.topics[0].cluster) == ("UNKNOWN", None, None)
    assert found.reason is not None
    assert "no cluster that is configured" in found.reason


# Partitions that were added.


def test_an_added_partition_counts_from_its_first_offset_before_spark_plans_it() -> None:
    found = evaluated(state(), said({0: 70, 1: 40}, {0: 0, 1: 10}))
    added = found.topics[0].partitions[1]
    assert (added.processed_offset, added.lag, added.status) == (None, 30, "OK")
    assert (found.status, found.total_lag, found.unknown_partitions) == ("OK", 95, 0)
    assert found.reason == f"1 of 2 partitions: {added.reason}"


@pytest.mark.parametrize("earliest", [{0: 0}, {0: 0, 1: 41}])
def test_an_added_partition_whose_first_offset_is_not_known_is_unknown(
    earliest: dict[int, int],
) -> None:
    offsets = said({0: 70, 1: 40}, earliest, asked_s=99)
    added = evaluated(state(), offsets, moment(100)).topics[0].partitions[1]
    assert (added.lag, added.status, added.latest_offset) == (None, "UNKNOWN", 40)
    assert added.measured_at == moment(99).now_ms


def test_a_partition_that_the_source_does_not_name_is_not_its_own() -> None:
    query = state(source({"orders": {0: 5}}, assigned={"orders": [0]}))
    found = evaluated(query, said({0: 70, 1: 40}, {0: 0, 1: 10}))
    assert (lags(found), found.reason, found.topics[0].assigned) == ([65], None, True)


def test_a_partition_that_the_source_names_is_counted_before_it_has_a_position() -> None:
    query = state(source({"orders": {0: 5}}, assigned={"orders": [0, 2]}))
    assert lags(evaluated(query, said({0: 70, 1: 9, 2: 40}, {2: 10}))) == [65, 30]


def test_a_topic_of_the_subscription_without_a_position_counts_whole() -> None:
    query = state(source({"orders": {0: 5}}, topics=("orders", "returns")))
    offsets = said({0: 9, 1: 8}, {0: 0, 1: 3}, topic="returns", beside=said({0: 70}))
    found = evaluated(query, offsets)
    assert (lags(found, 1), found.topics[1].total_lag, found.total_lag) == ([9, 5], 14, 79)


def test_an_added_partition_is_ordinary_once_spark_has_planned_it() -> None:
    query = Follower()
    query.hear(observation())
    query.measure(said({0: 70, 1: 40}, {0: 0, 1: 10}))
    query.hear(observation(sources=[position({"orders": {0: 5, 1: 12}})]))
    found = query.measure(said({0: 70, 1: 40}, {0: 0, 1: 10}))
    assert (lags(found), found.reason) == ([65, 28], None)


# Back to older offsets.


def rewound(to: int = 20) -> Follower:
    """A query that was at 50 and has gone back, in a new run."""
    query = Follower()
    query.hear(observation(sources=[position({"orders": {0: 50}})]))
    query.measure(said({0: 70}))
    query.hear(observation(cause="started", run_id=OTHER_RUN, sources=[SourcePosition(source=0)]))
    assert query.measure(said({0: 70})).status == "OK"
    query.hear(observation(run_id=OTHER_RUN, sources=[position({"orders": {0: to}})]))
    return query


def test_a_query_that_went_back_says_from_where_until_it_is_there_again() -> None:
    query = rewound(to=20)
    for reached in (20, 30, 49):
        query.hear(observation(run_id=OTHER_RUN, sources=[position({"orders": {0: reached}})]))
        found = query.measure(said({0: 70}))
        assert (only(found).status, only(found).rewound_from) == ("REWIND", 50)
        assert (found.status, found.total_lag) == ("REWIND", 70 - reached)
        assert only(found).reason == f"went back from 50 to older offsets, it is at {reached}"
        query.restart()
    query.hear(observation(run_id=OTHER_RUN, sources=[position({"orders": {0: 50}})]))
    found = query.measure(said({0: 70}))
    assert (found.status, only(found).rewound_from) == ("OK", None)


@pytest.mark.parametrize(
    ("between", "status"),
    [
        ({}, "UNKNOWN"),
        (said({0: 70}, asked_s=1), "UNKNOWN"),
        (said({}, missing="topic orders does not exist", gone=True), "GONE"),
        (said({0: 70}, {0: 60}), "DATA_LOSS"),
        (said({0: 3}), "UNKNOWN"),
    ],
    ids=["not measured", "old", "gone", "loss", "short"],
)
def test_what_comes_between_does_not_make_a_query_forget_that_it_went_back(
    between: Offsets, status: str
) -> None:
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
    query = Follower()
    query.hear(observation(sources=[position({"orders": {0: 50}})]))
    query.measure(said({0: 70}, topic_id=first_id))
    query.hear(observation(sources=[position({"orders": {0: 20}})]))
    found = query.measure(said({0: 70}, topic_id=then_id))
    assert (found.status, found.total_lag) == (status, 50)


def test_a_query_that_goes_back_twice_says_the_farthest() -> None:
    query = rewound(to=40)
    query.measure(said({0: 70}))
    query.hear(observation(run_id=OTHER_RUN, sources=[position({"orders": {0: 10}})]))
    assert only(query.measure(said({0: 70}))).rewound_from == 50


def test_only_the_partition_that_went_back_says_so() -> None:
    query = Follower()
    query.hear(observation(sources=[position({"orders": {0: 50, 1: 50}})]))
    query.measure(said({0: 70, 1: 70}))
    query.hear(observation(sources=[position({"orders": {0: 51, 1: 0}})]))
    assert statuses(query.measure(said({0: 70, 1: 70}))) == ["OK", "REWIND"]


# The query's own state comes first, its partitions' after.


def test_a_query_that_failed_says_with_what_on_one_line() -> None:
    query = state(ended=True, exception="\nboom\r\n\tat org.apache.spark")
    found = evaluated(query, said({0: 70}))
    assert (found.status, found.reason) == ("FAILED", "the query failed: boom")
    assert found.total_lag == 65


@pytest.mark.parametrize("text", ["", "\n"])
def test_a_failure_without_a_text_is_still_one(text: str) -> None:
    found = evaluated(state(ended=True, exception=text), said({0: 70}))
    assert (found.status, found.reason) == ("FAILED", "the query failed: it did not say why")


def test_a_stopped_query_is_finished_and_its_lag_goes_on() -> None:
    found = evaluated(state(ended=True), said({0: 70}))
    assert (found.status, found.total_lag) == ("FINISHED", 65)


@pytest.mark.parametrize(
    ("fields", "silent", "status"),
    [
        (
            {"ended": True, "exception": "boom", "other_run_id": OTHER_RUN},
            True,
            "FAILED",
        ),
        ({"ended": True, "other_run_id": OTHER_RUN}, True, "FINISHED"),
        ({"other_run_id": OTHER_RUN}, True, "STOP"),
        ({"other_run_id": OTHER_RUN}, False, "CONFLICT"),
        ({}, True, "STOP"),
        ({}, False, "DATA_LOSS"),
    ],
)
@pytest.mark.parametrize("earliest", [{0: 30}])
def test_what_is_known_of_the_query_comes_before_what_is_of_its_partitions(
    fields: dict[str, Any], silent: bool, status: str, earliest: dict[int, int]
) -> None:
    found = evaluated(state(**fields), said({0: 70}, earliest), silent=silent)
    assert (found.status, found.total_lag, only(found).status) == (status, 65, "DATA_LOSS")
    assert found.reason is not None


def test_two_runs_name_each_other() -> None:
    found = evaluated(state(other_run_id=OTHER_RUN), said({0: 70}))
    assert (found.other_run_id, found.run_id) == (OTHER_RUN, RUN_ID)
    assert found.reason is not None
    assert OTHER_RUN in found.reason
    assert RUN_ID in found.reason


def test_the_worst_partition_names_the_state_of_the_query() -> None:
    query = state(source({"orders": {0: 5, 1: 5, 2: 5, 3: 5}}))
    offsets = said({0: 70, 1: 70}, {0: 30}, unknown={1: NO_LEADER, 2: "x"}, partitions=3)
    found = evaluated(query, offsets)
    assert statuses(found) == ["DATA_LOSS", "OK", "UNKNOWN", "GONE"]
    assert found.status == "DATA_LOSS"


# Versions, and what stays the same.


def test_the_version_rises_also_where_the_clock_steps_back() -> None:
    query = Follower()
    query.hear(observation())
    first = query.measure(said({0: 70}), moment(100))
    second = query.measure(said({0: 70}, asked_s=40), moment(40))
    third = query.measure(said({0: 70}, asked_s=41), moment(41))
    assert first.version < second.version < third.version
    assert second.measured_at == first.measured_at + 1
    query.hear(observation(observed_at=first.observed_at + 5))
    fourth = query.measure(said({0: 70}, asked_s=42), moment(42))
    assert third.version < fourth.version
    assert fourth.measured_at == moment(42).now_ms


def test_a_partition_that_did_not_change_is_the_same_object() -> None:
    query = Follower()
    processed = {"orders": {0: 5, 1: 5, 2: 5}}
    query.hear(observation(sources=[position(processed)]))
    first = query.measure(said({0: 70, 1: 70, 2: 70}, {0: 0, 1: 0, 2: 0}))
    query.hear(observation(cause="idle", sources=[position(processed)]))
    second = query.measure(
        said({0: 70, 1: 71, 2: 70}, {0: 0, 1: 0, 2: 1}, asked_s=101), moment(101)
    )
    pairs = zip(first.topics[0].partitions, second.topics[0].partitions, strict=True)
    assert [old is new for old, new in pairs] == [True, False, False]


def test_a_new_plan_makes_a_partition_another() -> None:
    planned = [position(planned={"orders": {0: 8}})]
    query = Follower()
    query.hear(observation())
    query.measure(said({0: 70}))
    query.hear(observation(sources=planned))
    assert only(query.measure(said({0: 70}))).planned_offset == 8


@pytest.mark.parametrize(
    "then",
    [
        {},
        said({0: 70}, asked_s=99),
        said({0: 70}, topic_id="id-b"),
        said({}, missing="topic orders does not exist", gone=True),
        said({0: 70}, {0: 6}),
    ],
    ids=["not measured", "old", "created anew", "gone", "loss"],
)
def test_a_partition_of_which_something_else_is_to_say_is_not_the_same(then: Offsets) -> None:
    query = Follower()
    query.hear(observation())
    first = query.measure(said({0: 70}))
    assert only(query.measure(then)) != only(first)


# Any input.


def check(found: LagEvent) -> None:
    """What holds for every event."""
    partitions = [one for topic in found.topics for one in topic.partitions]
    known = [one.lag for one in partitions if one.lag is not None]
    for topic in found.topics:
        of_topic = [one.lag for one in topic.partitions if one.lag is not None]
        assert topic.total_lag == (sum(of_topic) if of_topic else None)
        numbers = [one.partition for one in topic.partitions]
        assert numbers == sorted(set(numbers))
    assert found.total_lag == (sum(known) if known else None)
    assert found.max_lag == (max(known) if known else None)
    assert found.unknown_partitions == len(partitions) - len(known)
    assert found.lost_records == sum(one.lost_records or 0 for one in partitions)
    assert found.reason or (found.status == "OK" and found.total_lag is not None)
    for one in partitions:
        assert one.reason or (one.status == "OK" and one.lag is not None)
        assert (one.lost_records is not None) == (one.status == "DATA_LOSS")
        assert one.rewound_from is not None or one.status != "REWIND"
        if one.lag is None:
            assert one.status != "OK"
            continue
        assert one.latest_offset is not None
        start = one.processed_offset if one.processed_offset is not None else one.earliest_offset
        assert start is not None
        assert one.lag == one.latest_offset - start >= 0
        assert one.measured_at is None or one.measured_at <= found.measured_at
    # The numbers of a wrong kind do not get past the codec.
    assert decode_lag_event(encode(found)) == found


def anything_said(dice: random.Random, now_s: float) -> Offsets:
    offsets: dict[str, ClusterOffsets] = {}
    for cluster in ("default", "east"):
        if dice.random() < 0.1:
            continue
        answer = offsets[cluster] = ClusterOffsets()
        for topic in ("orders", "returns"):
            kind = dice.choice(["there"] * 6 + ["gone", "forbidden", "unseen"])
            if kind == "there":
                topic_id = dice.choice(["id-a", "id-a", "id-a", "id-b", None])
                answer.topics[topic] = Topic(topic_id, tuple(range(dice.randint(1, 4))))
            elif kind != "unseen":
                answer.topics[topic] = Topic(None, (), f"topic {topic} is {kind}", kind == "gone")
            for number in range(4):
                one = partition(number, topic)
                for level in answer.latest.values():
                    if dice.random() < 0.8:
                        asked_s = now_s - dice.choice([0, 0, 0, 1, 59, 61])
                        level[one] = Latest(dice.randint(0, 20), asked_s)
                if dice.random() < 0.8:
                    answer.earliest[one] = dice.choice([0, 0, dice.randint(0, 20)])
                if dice.random() < 0.2:
                    answer.unknown[one] = NO_LEADER
    return offsets


def any_position(dice: random.Random, index: int) -> SourcePosition:
    topics = dice.sample(["orders", "returns"], dice.randint(1, 2))
    processed = {
        topic: {number: dice.randint(0, 20) for number in range(dice.randint(1, 4))}
        for topic in topics
        if dice.random() < 0.9
    }
    return SourcePosition(
        source=index,
        processed=processed if dice.random() < 0.8 else None,
        topics=dice.choice([None, topics, ["orders", "returns"]]),
        assigned=dice.choice([None, None, {"orders": [0, 2]}]),
        isolation_level=dice.choice(["read_uncommitted", "read_committed"]),
    )


def test_whatever_is_heard_and_measured_no_lag_is_negative_or_without_a_reason() -> None:
    dice = random.Random(3)
    for _ in range(300):
        query = Follower()
        for step in range(dice.randint(1, 12)):
            now_s = 200.0 + dice.choice([step, step, dice.randint(0, 12)])
            cause = dice.choice(["started", "progress", "progress", "idle", "terminated"])
            query.hear(
                observation(
                    cause=cause,
                    cluster=dice.choice(["default", "default", "east"]),
                    run_id=dice.choice([RUN_ID, RUN_ID, OTHER_RUN]),
                    observed_at=1_790_000_000_000 + dice.randint(0, 99_000),
                    sources=[any_position(dice, index) for index in range(dice.randint(1, 2))],
                    exception="boom" if cause == "terminated" and dice.random() < 0.5 else None,
                )
            )
            for _ in range(dice.randint(0, 3)):
                before = query.last
                found = query.measure(
                    anything_said(dice, now_s), moment(now_s), silent=dice.random() < 0.1
                )
                check(found)
                assert before is None or found.version > before.version
                if dice.random() < 0.1:
                    query.restart()
                now_s += dice.choice([0, 1, -1])

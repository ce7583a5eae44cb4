"""Lag of topics and positions that were deleted, created anew, added to, or went back."""

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
    offsets_at,
    only,
    source,
    state,
    statuses,
)


def at(*offsets: int, **fields: Any) -> Observation:
    return observation(sources=[position({"orders": dict(enumerate(offsets))})], **fields)


def test_records_deleted_unread_are_reported_and_counted() -> None:
    result = evaluated(
        state(source({"orders": {0: 5, 1: 5, 2: 5}})),
        offsets_at({0: 70, 1: 70, 2: 70}, {0: 30, 1: 6, 2: 5}),
    )
    assert statuses(result) == ["DATA_LOSS", "DATA_LOSS", "OK"]
    first = result.topics[0].partitions[0]
    assert (first.lost_records, first.lag, first.readable_lag) == (25, 65, 40)
    assert first.reason == "25 records were deleted before they were read"
    assert (result.status, result.lost_records, result.total_lag) == ("DATA_LOSS", 26, 169)
    assert result.reason == "2 of 3 partitions: 25 records were deleted before they were read"


def test_a_log_that_was_emptied_unread_is_a_loss_too() -> None:
    result = evaluated(state(), offsets_at({0: 70}, {0: 70}))
    assert (only(result).status, only(result).lost_records) == ("DATA_LOSS", 65)
    assert (only(result).lag, only(result).readable_lag, only(result).time_lag_s) == (65, 0, None)
    assert (result.total_lag, result.max_lag, result.catch_up_s) == (0, 0, 0.0)


def test_a_first_offset_past_the_logs_end_is_of_another_time_and_no_loss() -> None:
    result = evaluated(state(), offsets_at({0: 70}, {0: 5_000}))
    assert (only(result).status, only(result).lag, only(result).lost_records) == ("OK", 65, None)


def test_a_topic_created_anew_is_reported_by_its_id_while_the_position_remains() -> None:
    query = Follower()
    query.hear(observation())
    assert query.measure(offsets_at({0: 70})).topics[0].topic_id == "id-a"
    for _ in range(2):
        result = query.measure(offsets_at({0: 900}, topic_id="id-b"))
        assert (only(result).lag, only(result).latest_offset) == (None, None)
        assert (only(result).status, result.status, result.total_lag) == (
            "RECREATED",
            "RECREATED",
            None,
        )
        assert "recreated" in str(result.reason)
        query.restart()


def test_a_topic_created_anew_is_reported_through_a_restart_without_data() -> None:
    query = followed(offsets_at({0: 70}))
    query.restart()
    query.hear(observation(cause="started", run_id=OTHER_RUN, sources=[SourcePosition(source=0)]))
    assert query.measure(offsets_at({0: 900}, topic_id="id-b")).status == "RECREATED"


def test_the_end_of_a_batch_that_began_in_the_old_topic_is_no_position_in_the_new_one() -> None:
    query = followed(offsets_at({0: 70}))
    anew = offsets_at({0: 3}, topic_id="id-b")
    query.measure(anew)
    query.hear(at(70))
    assert query.measure(anew).status == "RECREATED"
    query.hear(at(3))
    result = query.measure(anew)
    assert (result.status, result.total_lag, only(result).rewound_from) == ("OK", 0, None)


def test_where_the_id_is_not_known_for_a_while_it_is_remembered() -> None:
    query = followed(offsets_at({0: 70}))
    assert query.measure({}).topics[0].topic_id == "id-a"
    assert query.measure(offsets_at({}, missing="no broker answers")).topics[0].topic_id == "id-a"
    assert query.measure(offsets_at({0: 900}, topic_id="id-b")).status == "RECREATED"


def test_after_the_topic_was_created_anew_an_id_not_known_is_not_taken_for_the_old_one() -> None:
    query = followed(offsets_at({0: 70}))
    query.measure(offsets_at({0: 900}, topic_id="id-b"))
    query.hear(at(100))
    assert query.measure({}).topics[0].topic_id is None
    assert query.measure(offsets_at({0: 900}, topic_id="id-b")).total_lag == 800


def test_an_id_that_comes_with_newer_brokers_is_no_other_topic() -> None:
    query = followed(offsets_at({0: 70}, topic_id=None), at(50))
    assert query.measure(offsets_at({0: 70})).total_lag == 20
    query.hear(at(40))
    assert query.measure(offsets_at({0: 70})).status == "REWIND"


def test_without_ids_a_log_that_ends_before_the_position_was_created_anew() -> None:
    query = followed(offsets_at({0: 70}, topic_id=None))
    query.measure(offsets_at({0: 3}, topic_id=None))
    query.restart()
    result = query.measure(offsets_at({0: 3}, topic_id=None))
    assert (only(result).lag, only(result).status, result.status) == (
        None,
        "RECREATED",
        "RECREATED",
    )
    assert only(result).latest_offset == 3


def test_without_ids_the_first_position_in_a_new_topic_is_not_reported_as_rewound() -> None:
    query = followed(offsets_at({0: 70}, topic_id=None))
    query.measure(offsets_at({0: 3}, topic_id=None))
    query.hear(at(2))
    result = query.measure(offsets_at({0: 3}, topic_id=None))
    assert (result.status, result.total_lag, only(result).rewound_from) == ("OK", 1, None)


@pytest.mark.parametrize("topic_id", ["id-a", None])
def test_a_position_that_was_never_inside_a_shorter_log_has_no_lag(topic_id: str | None) -> None:
    result = evaluated(state(), offsets_at({0: 3}, topic_id=topic_id))
    assert (only(result).lag, only(result).status) == (None, "UNKNOWN")
    assert only(result).reason == (
        "partition 0: the log ends at 3, before the processed offset 5: its leader lost records or"
        " has not caught up, or it is of another cluster"
    )


def test_a_topic_that_is_gone_needs_no_words_to_be_reported() -> None:
    gone: ClusterOffsets = {"orders": TopicOffsets(Topic(gone=True), 0.0)}
    assert only(evaluated(state(), {"default": gone})).reason == "topic orders does not exist"


def test_a_position_in_a_partition_that_never_was_is_of_another_cluster() -> None:
    query = followed(offsets_at({0: 70}), at(5, 5))
    for _ in range(2):
        result = query.measure(offsets_at({0: 70}))
        assert (lags(result), statuses(result)) == ([None, None], ["UNKNOWN", "UNKNOWN"])
        query.restart()
    result = evaluated(state(source({"orders": {0: 5, 1: 90}})), offsets_at({0: 70, 1: 70}))
    assert lags(result) == [None, None], "that one fits is chance"


def test_a_partition_that_is_gone_is_reported_beside_those_that_are_there() -> None:
    query = followed(offsets_at({0: 70, 1: 70}, topic_id=None), at(5, 5))
    query.measure(offsets_at({0: 70}, topic_id=None))
    query.restart()
    result = query.measure(offsets_at({0: 70}, topic_id=None))
    assert (lags(result), statuses(result)) == ([65, None], ["OK", "GONE"])
    assert result.reason == "1 of 2 partitions: topic orders has no partition 1"


def test_a_partition_that_answers_is_there_though_the_list_of_them_is_older() -> None:
    query = state(source({"orders": {0: 5, 1: 5}}))
    assert lags(evaluated(query, offsets_at({0: 70, 1: 70}, partitions=1))) == [65, 65]


@pytest.mark.parametrize(
    ("offsets", "status", "reason"),
    [
        (
            offsets_at({}, topic="returns", missing="topic returns does not exist", gone=True),
            "GONE",
            "topic returns does not exist",
        ),
        (
            offsets_at({}, topic="returns", missing="no right to describe topic returns"),
            "UNKNOWN",
            "no right to describe topic returns",
        ),
        ({}, "UNKNOWN", "not measured yet"),
    ],
    ids=["gone", "forbidden", "unseen"],
)
def test_an_unmeasured_topic_counts(offsets: OffsetsByCluster, status: str, reason: str) -> None:
    query = state(source({"orders": {0: 5}}, topics=["orders", "returns"]))
    result = evaluated(query, offsets_at({0: 70}, beside=offsets))
    assert (result.total_lag, result.topics[1].total_lag) == (65, None)
    assert (result.status, result.reason) == (status, reason)


def test_a_query_that_never_began_reports_that_its_topic_is_not_there() -> None:
    query = state(source(None, topics=["orders"]))
    result = evaluated(query, offsets_at({}, missing="topic orders does not exist", gone=True))
    assert (result.status, result.reason) == ("GONE", "topic orders does not exist")


@pytest.mark.parametrize("processed", [{"orders": {0: 5}}, None])
def test_a_source_without_cluster_is_unknown(processed: dict[str, dict[int, int]] | None) -> None:
    query = state(source(processed, topics=["orders"], cluster=None))
    result = evaluated(query, offsets_at({0: 70}))
    assert (result.status, result.total_lag, result.topics[0].cluster) == ("UNKNOWN", None, None)
    assert "no configured cluster" in str(result.reason)


def test_an_added_partition_counts_from_its_first_offset_before_spark_plans_it() -> None:
    result = evaluated(state(), offsets_at({0: 70, 1: 40}, {0: 0, 1: 10}))
    added = result.topics[0].partitions[1]
    assert (added.processed_offset, added.lag, added.status) == (None, 30, "OK")
    assert (result.status, result.total_lag, result.unknown_partitions) == ("OK", 95, 0)
    assert result.reason == f"1 of 2 partitions: {added.reason}"


@pytest.mark.parametrize("earliest", [{0: 0}, {0: 0, 1: 41}])
def test_an_added_partition_without_first_offset_is_unknown(earliest: dict[int, int]) -> None:
    offsets = offsets_at({0: 70, 1: 40}, earliest, requested_s=99)
    added = evaluated(state(), offsets, moment(100)).topics[0].partitions[1]
    assert (added.lag, added.status, added.latest_offset) == (None, "UNKNOWN", 40)
    assert added.measured_at == moment(99).now_ms


def test_a_partition_that_the_source_names_is_counted_before_it_has_a_position() -> None:
    query = state(source({"orders": {0: 5}}, assigned={"orders": [0, 2]}))
    assert lags(evaluated(query, offsets_at({0: 70, 1: 9, 2: 40}, {2: 10}))) == [65, 30]


def test_a_topic_of_the_subscription_without_a_position_counts_whole() -> None:
    query = state(source({"orders": {0: 5}}, topics=["orders", "returns"]))
    offsets = offsets_at({0: 9, 1: 8}, {0: 0, 1: 3}, topic="returns", beside=offsets_at({0: 70}))
    result = evaluated(query, offsets)
    assert (lags(result, 1), result.topics[1].total_lag, result.total_lag) == ([9, 5], 14, 79)


def test_a_topic_that_matches_the_pattern_counts_whole_before_it_is_read() -> None:
    query = state(source({"orders": {0: 5}}, topic_pattern="o|r", matched=("orders", "returns")))
    offsets = offsets_at({0: 9}, {0: 3}, topic="returns", beside=offsets_at({0: 70}))
    assert (evaluated(query, offsets).status, evaluated(query, offsets).total_lag) == ("OK", 71)


def test_where_a_pattern_cannot_be_matched_the_query_is_unknown_and_the_lag_of_the_rest() -> None:
    query = state(source({"orders": {0: 5}}, topic_pattern=r"\p", unlisted="cannot evaluate it"))
    result = evaluated(query, offsets_at({0: 70}))
    assert (result.status, result.reason) == ("UNKNOWN", "cannot evaluate it")
    assert (result.total_lag, statuses(result)) == (65, ["OK"])


def test_an_added_partition_is_ordinary_once_spark_has_planned_it() -> None:
    query = followed(offsets_at({0: 70, 1: 40}, {0: 0, 1: 10}))
    query.hear(at(5, 12))
    result = query.measure(offsets_at({0: 70, 1: 40}, {0: 0, 1: 10}))
    assert (lags(result), result.reason) == ([65, 28], None)


def rewound(to: int = 20) -> Follower:
    """A query that was at 50 and has gone back, in a new run."""
    query = followed(offsets_at({0: 70}), at(50))
    query.hear(observation(cause="started", run_id=OTHER_RUN, sources=[SourcePosition(source=0)]))
    assert query.measure(offsets_at({0: 70})).status == "OK"
    query.hear(at(to, run_id=OTHER_RUN))
    return query


def test_a_query_that_went_back_reports_from_where_until_it_is_there_again() -> None:
    query = rewound(to=20)
    for reached in (20, 30, 49):
        query.hear(at(reached, run_id=OTHER_RUN))
        result = query.measure(offsets_at({0: 70}))
        assert (only(result).status, only(result).rewound_from) == ("REWIND", 50)
        assert (result.status, result.total_lag) == ("REWIND", 70 - reached)
        assert only(result).reason == f"went back from offset 50, now at offset {reached}"
        query.restart()
    query.hear(at(50, run_id=OTHER_RUN))
    result = query.measure(offsets_at({0: 70}))
    assert (result.status, only(result).rewound_from) == ("OK", None)


@pytest.mark.parametrize(
    ("between", "status"),
    [
        ({}, "UNKNOWN"),
        (offsets_at({0: 70}, requested_s=1), "UNKNOWN"),
        (offsets_at({}, missing="topic orders does not exist", gone=True), "GONE"),
        (offsets_at({0: 70}, {0: 60}), "DATA_LOSS"),
        (offsets_at({0: 3}), "UNKNOWN"),
    ],
    ids=["not measured", "old", "gone", "loss", "short"],
)
def test_nothing_between_makes_it_forget_a_rewind(between: OffsetsByCluster, status: str) -> None:
    query = rewound()
    assert only(query.measure(offsets_at({0: 70}))).rewound_from == 50
    result = query.measure(between)
    assert (result.status, only(result).rewound_from) == (status, 50)
    query.restart()
    assert query.measure(offsets_at({0: 70})).status == "REWIND"


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
    query = followed(offsets_at({0: 70}, topic_id=first_id), at(50))
    query.hear(at(20))
    result = query.measure(offsets_at({0: 70}, topic_id=then_id))
    assert (result.status, result.total_lag) == (status, 50)


def test_a_query_that_goes_back_twice_reports_the_farthest() -> None:
    query = rewound(to=40)
    query.measure(offsets_at({0: 70}))
    query.hear(at(10, run_id=OTHER_RUN))
    assert only(query.measure(offsets_at({0: 70}))).rewound_from == 50


def test_only_the_partition_that_went_back_reports_so() -> None:
    query = followed(offsets_at({0: 70, 1: 70}), at(50, 50))
    query.hear(at(51, 0))
    assert statuses(query.measure(offsets_at({0: 70, 1: 70}))) == ["OK", "REWIND"]

"""Which partition records are due: what changed, at the heartbeat, and what is gone."""

from __future__ import annotations

from msgspec.structs import replace

from sparklag_schemas import LagEvent, PartitionLag, TopicLag
from sparklag_schemas.messages.lag_event import partition_key
from sparklag_service.publishing.published_query import Change, PartitionChanges
from tests.messages import QUERY_ID, lag_event

HEARTBEAT_S = 60.0


def partition(number: int, latest: int = 70, **fields: object) -> PartitionLag:
    return PartitionLag(
        partition=number,
        processed_offset=5,
        latest_offset=latest,
        lag=latest - 5,
        status="OK",
        **fields,  # type: ignore[arg-type]  # whatever a test is about
    )


def event(*partitions: PartitionLag, **fields: object) -> LagEvent:
    return lag_event(
        topics=[TopicLag(topic="orders", source=0, partitions=list(partitions))], **fields
    )


def write(changes: PartitionChanges, of: LagEvent, now_s: float) -> list[Change]:
    due = changes.due(of, now_s)
    for change in due:
        changes.written(change)
    return due


def written(*partitions: PartitionLag) -> PartitionChanges:
    changes = PartitionChanges(HEARTBEAT_S)
    write(changes, event(*partitions), 0.0)
    return changes


def numbers(due: list[Change]) -> list[int]:
    return [int(change.key.rpartition("/")[2]) for change in due]


def test_a_record_reports_what_its_event_does() -> None:
    of = event(partition(3, time_lag_s=1.5, time_lag_method="sampled"), status="WARN")
    (change,) = PartitionChanges(HEARTBEAT_S).due(of, 0.0)
    record = change.record
    assert record is not None
    assert change.key == partition_key(QUERY_ID, 0, "orders", 3) == f"{QUERY_ID}/0/orders/3"
    assert (record.event_id, record.query, record.query_status) == ("e7e7", "orders", "WARN")
    assert (record.lag, record.time_lag_s, record.status) == (65, 1.5, "OK")
    assert record.measured_at == of.measured_at


def test_the_moment_of_an_old_measurement_is_its_own() -> None:
    (change,) = PartitionChanges(HEARTBEAT_S).due(event(partition(0, measured_at=17)), 0.0)
    assert change.record is not None
    assert change.record.measured_at == 17


def test_time_that_passes_is_no_change() -> None:
    changes = written(partition(0, time_lag_s=1.0, time_lag_method="sampled"))
    older = event(partition(0, time_lag_s=2.0, time_lag_method="sampled"))
    assert write(changes, older, 1.0) == []


def test_the_state_of_the_query_is_a_change_of_all() -> None:
    changes = written(partition(0), partition(1))
    stuck = event(partition(0), partition(1), status="STALL")
    assert numbers(write(changes, stuck, 1.0)) == [0, 1]


def test_each_is_due_at_its_heartbeat() -> None:
    changes = written(partition(0), partition(1))
    write(changes, event(partition(0), partition(1, 71)), 30.0)
    assert numbers(write(changes, event(partition(0), partition(1, 71)), 60.0)) == [0]
    assert numbers(write(changes, event(partition(0), partition(1, 71)), 90.0)) == [1]


def test_what_is_not_acknowledged_is_due_again() -> None:
    changes = PartitionChanges(HEARTBEAT_S)
    first = changes.due(event(partition(0), partition(1)), 0.0)
    changes.written(first[0])
    assert numbers(changes.due(event(partition(0), partition(1)), 1.0)) == [1]


def test_a_partition_that_is_gone_gets_one_tombstone() -> None:
    changes = written(partition(0), partition(1))
    (gone,) = write(changes, event(partition(0)), 1.0)
    assert (gone.key, gone.record) == (f"{QUERY_ID}/0/orders/1", None)
    assert write(changes, event(partition(0)), 2.0) == []


def test_a_topic_that_two_sources_read_has_a_record_for_each() -> None:
    topics = [TopicLag(topic="orders", source=n, partitions=[partition(0)]) for n in (0, 1)]
    due = PartitionChanges(HEARTBEAT_S).due(lag_event(topics=topics), 0.0)
    assert [change.key for change in due] == [f"{QUERY_ID}/{n}/orders/0" for n in (0, 1)]


def test_a_query_that_was_taken_over_has_records_and_each_is_due() -> None:
    changes = PartitionChanges(HEARTBEAT_S)
    changes.take_over(event(partition(0), partition(1)))
    assert numbers(changes.all_gone()) == [0, 1]
    assert numbers(changes.due(event(partition(0)), 1.0)) == [0, 1]


def test_an_event_without_partitions_reports_nothing_of_any() -> None:
    assert PartitionChanges(HEARTBEAT_S).due(replace(event(), topics=[]), 0.0) == []

"""Lag from positions and offsets. Pure functions: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aiokafka.structs import TopicPartition

from sparklag_schemas import (
    Cause,
    IsolationLevel,
    LagEvent,
    MeasuredBy,
    PartitionLag,
    Status,
    TopicLag,
)
from sparklag_service.tracker import QueryState, SourceState

# From good to bad: a query is as bad as its worst partition.
_SEVERITY: tuple[Status, ...] = (
    "OK",
    "FINISHED",
    "UNKNOWN",
    "WARN",
    "REWIND",
    "STALL",
    "STOP",
    "RECREATED",
    "DATA_LOSS",
    "FAILED",
)


@dataclass(frozen=True)
class Measurement:
    """What Kafka said in one pass: offsets by isolation level and partition, or why there is none.

    `latest` was read after every position it is compared with.
    """

    measured_at_ms: int
    latest: Mapping[IsolationLevel, Mapping[TopicPartition, int]]
    earliest: Mapping[TopicPartition, int] = field(default_factory=dict)
    unknown: Mapping[TopicPartition, str] = field(default_factory=dict)
    partitions: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Partitions of topics that a query reads, for one that has no position yet."""


def evaluate(
    state: QueryState,
    measurement: Measurement,
    event_id: str,
    cause: Cause,
    measured_by: MeasuredBy,
) -> LagEvent:
    """The lag of a query: `latest - processed` of each partition, and their sum."""
    topics = [
        _topic_lag(source, topic, measurement)
        for source in state.sources
        for topic in source.watched_topics()
    ]
    partitions = [partition for topic in topics for partition in topic.partitions]
    lags = [partition.lag for partition in partitions if partition.lag is not None]
    status, reason = _query_status(state, partitions)
    return LagEvent(
        event_id=event_id,
        cluster=state.cluster,
        query_id=state.query_id,
        run_id=state.run_id,
        query=state.name,
        batch_id=state.batch_id,
        cause=cause,
        measured_by=measured_by,
        status=status,
        reason=reason,
        total_lag=sum(lags) if lags else None,
        max_lag=max(lags, default=None),
        unknown_partitions=len(partitions) - len(lags),
        processed_at=state.processed_at_ms,
        observed_at=state.observed_at_ms,
        measured_at=measurement.measured_at_ms,
        batch=state.batch,
        checkpoint_location=state.checkpoint_location,
        exception=state.exception,
        topics=topics,
    )


def _topic_lag(source: SourceState, topic: str, measurement: Measurement) -> TopicLag:
    processed = (source.processed or {}).get(topic, {})
    planned = (source.planned or {}).get(topic, {})
    numbers = sorted(processed) if processed else sorted(measurement.partitions.get(topic, ()))
    latest = measurement.latest.get(source.isolation_level, {})
    partitions = [
        _partition_lag(
            TopicPartition(topic, number),
            processed.get(number),
            planned.get(number),
            latest,
            measurement,
        )
        for number in numbers
    ]
    lags = [partition.lag for partition in partitions if partition.lag is not None]
    return TopicLag(
        topic=topic,
        source=source.source,
        isolation_level=source.isolation_level,
        total_lag=sum(lags) if lags else None,
        partitions=partitions,
    )


def _partition_lag(
    partition: TopicPartition,
    processed: int | None,
    planned: int | None,
    latest_offsets: Mapping[TopicPartition, int],
    measurement: Measurement,
) -> PartitionLag:
    latest = latest_offsets.get(partition)
    earliest = measurement.earliest.get(partition)
    lag, status, reason = _lag(processed, latest, earliest)
    if latest is None:
        reason = measurement.unknown.get(partition, "not measured yet")
    return PartitionLag(
        partition=partition.partition,
        processed_offset=processed,
        planned_offset=planned,
        latest_offset=latest,
        earliest_offset=earliest,
        lag=lag,
        status=status,
        reason=reason,
    )


def _lag(
    processed: int | None, latest: int | None, earliest: int | None
) -> tuple[int | None, Status, str | None]:
    if latest is None:
        return None, "UNKNOWN", None
    if processed is None:
        return None, "UNKNOWN", "no batch has completed yet"
    if latest < processed:
        # Processed is read first, so the log itself went back: a new topic of the same name.
        return (
            None,
            "RECREATED",
            f"the log ends at {latest}, before the processed offset {processed}:"
            " the topic was created anew",
        )
    if earliest is not None and earliest > processed:
        return (
            latest - processed,
            "DATA_LOSS",
            f"{earliest - processed} records were deleted before they were read",
        )
    return latest - processed, "OK", None


def _query_status(state: QueryState, partitions: list[PartitionLag]) -> tuple[Status, str | None]:
    if state.exception is not None:
        return "FAILED", f"the query failed: {state.exception.strip().partition(chr(10))[0]}"
    if state.ended:
        return "FINISHED", "the query was stopped"
    if not state.known:
        return "UNKNOWN", "no batch has completed yet"
    worst = max(partitions, key=lambda partition: _SEVERITY.index(partition.status), default=None)
    if worst is None or worst.status == "OK":
        return "OK", None
    alike = sum(partition.status == worst.status for partition in partitions)
    return worst.status, f"{alike} of {len(partitions)} partitions: {worst.reason}"

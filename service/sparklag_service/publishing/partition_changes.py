"""What there is to say of each partition of a query, one by one. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from sparklag_schemas import LagEvent, PartitionLag, PartitionRecord, TopicLag
from sparklag_schemas.partition_record import partition_key
from sparklag_service.publishing.cadence import partition_changed


class Change(NamedTuple):
    """A record to be written. Without one, the partition is gone: a tombstone."""

    key: str
    record: PartitionRecord | None
    said: _Said | None


class _Said(NamedTuple):
    """What was written last."""

    partition: PartitionLag
    query_status: str
    at_s: float


class PartitionChanges:
    """Of the queries that this instance publishes."""

    def __init__(self, heartbeat_s: float) -> None:
        self._heartbeat_s = heartbeat_s
        self._said: dict[str, dict[str, _Said | None]] = {}
        """By query id and key. None: somebody else wrote it, who knows what."""

    def taken_over(self, event: LagEvent) -> None:
        """Its newest event was published by another instance, with a record of each partition."""
        self._said[event.query_id] = {key: None for key, _, _ in _partitions(event)}

    def let_go(self, query_id: str) -> None:
        """Another instance publishes it."""
        self._said.pop(query_id, None)

    def due(self, event: LagEvent, now_s: float) -> list[Change]:
        """What of the event to write now: what changed, what was not written for a heartbeat, and
        what is gone."""
        said = self._said.setdefault(event.query_id, {})
        changes = []
        keys = set()
        for key, topic, partition in _partitions(event):
            keys.add(key)
            last = said.get(key)
            if (
                last is None
                or now_s - last.at_s >= self._heartbeat_s
                or last.query_status != event.status
                or partition_changed(last.partition, partition)
            ):
                record = _record(event, topic, partition)
                changes.append(Change(key, record, _Said(partition, event.status, now_s)))
        return changes + [Change(key, None, None) for key in said.keys() - keys]

    def all_gone(self, query_id: str) -> list[Change]:
        """The query is forgotten: a tombstone for each."""
        return [Change(key, None, None) for key in self._said.get(query_id, ())]

    def written(self, query_id: str, change: Change) -> None:
        """It is acknowledged."""
        said = self._said.get(query_id)
        if said is None:
            return
        if change.said is not None:
            said[change.key] = change.said
        else:
            said.pop(change.key, None)
            if not said:
                del self._said[query_id]


def _partitions(event: LagEvent) -> Iterator[tuple[str, TopicLag, PartitionLag]]:
    for topic in event.topics:
        for partition in topic.partitions:
            key = partition_key(event.query_id, topic.source, topic.topic, partition.partition)
            yield key, topic, partition


def _record(event: LagEvent, topic: TopicLag, partition: PartitionLag) -> PartitionRecord:
    said = msgspec.structs.asdict(partition)
    said["measured_at"] = partition.measured_at or event.measured_at
    return PartitionRecord(
        **said,
        event_id=event.event_id,
        query_id=event.query_id,
        query=event.query,
        run_id=event.run_id,
        batch_id=event.batch_id,
        observed_at=event.observed_at,
        processed_at=event.processed_at,
        query_status=event.status,
        cluster=topic.cluster,
        source=topic.source,
        topic=topic.topic,
    )

"""Which records of a query's partitions are to be written. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sparklag_schemas import LagEvent, PartitionLag, PartitionRecord, TopicLag
from sparklag_schemas.partition_record import partition_key, partition_record
from sparklag_service.publishing.cadence import partition_changed


class Change(NamedTuple):
    """A record to be written. Without one, the partition is gone: a tombstone."""

    key: str
    record: PartitionRecord | None
    written: _Written | None


class _Written(NamedTuple):
    """What a key's last record was made of."""

    partition: PartitionLag
    query_status: str
    at_s: float


class PartitionChanges:
    """Of the queries that this instance publishes."""

    def __init__(self, heartbeat_s: float) -> None:
        self._heartbeat_s = heartbeat_s
        self._written: dict[str, dict[str, _Written | None]] = {}
        """By query id and key. None: another instance wrote the last record."""

    def taken_over(self, event: LagEvent) -> None:
        """Another instance published the query's newest event, with a record of each partition."""
        self._written[event.query_id] = {key: None for key, _, _ in _partitions(event)}

    def let_go(self, query_id: str) -> None:
        """Another instance publishes the query now."""
        self._written.pop(query_id, None)

    def due(self, event: LagEvent, now_s: float) -> list[Change]:
        """What to write now: what changed, what was not written for a heartbeat, what is gone."""
        written = self._written.setdefault(event.query_id, {})
        changes = []
        keys = set()
        for key, topic, partition in _partitions(event):
            keys.add(key)
            last = written.get(key)
            if (
                last is None
                or now_s - last.at_s >= self._heartbeat_s
                or last.query_status != event.status
                or partition_changed(last.partition, partition)
            ):
                record = partition_record(event, topic, partition)
                changes.append(Change(key, record, _Written(partition, event.status, now_s)))
        return changes + [Change(key, None, None) for key in written.keys() - keys]

    def all_gone(self, query_id: str) -> list[Change]:
        """A tombstone for each partition of a query that is forgotten."""
        return [Change(key, None, None) for key in self._written.get(query_id, ())]

    def written(self, query_id: str, change: Change) -> None:
        """The change is acknowledged."""
        written = self._written.get(query_id)
        if written is None:
            return
        if change.written is not None:
            written[change.key] = change.written
        else:
            written.pop(change.key, None)
            if not written:
                del self._written[query_id]


def _partitions(event: LagEvent) -> Iterator[tuple[str, TopicLag, PartitionLag]]:
    for topic in event.topics:
        for partition in topic.partitions:
            key = partition_key(event.query_id, topic.source, topic.topic, partition.partition)
            yield key, topic, partition

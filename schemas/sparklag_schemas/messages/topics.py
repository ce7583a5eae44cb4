"""Our topics: their required settings, and the partition of a query's messages."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from sparklag_schemas.settings import Settings

_log = logging.getLogger("sparklag.schemas")
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_MIN_MESSAGE_BYTES = 1_048_588
"""Kafka's default of `max.message.bytes`: a lower value refuses wide queries."""
_COMMON_CONFIG: Final = {
    "max.message.bytes": str(8 * 1024 * 1024),
    # The broker sets the timestamps of records: times in messages are checked against them.
    "message.timestamp.type": "LogAppendTime",
}


@dataclass(frozen=True)
class TopicSpec:
    """The required settings of a topic; `config` has those of its creation."""

    name: str
    partitions: int
    replication_factor: int | None
    """None: 3, or as many as there are brokers."""
    config: Mapping[str, str] = field(default_factory=dict)
    shortest_retention_ms: int = _HOUR_MS

    def problems(self, config: Mapping[str, str]) -> list[str]:
        """Sentences on the settings in `config` (name to value) that would lose data."""
        problems = []
        policy, required = (c.get("cleanup.policy", "delete") for c in (config, self.config))
        if not {*policy.split(",")} <= {*required.split(",")}:
            problems.append(
                f"topic {self.name}: cleanup.policy={policy} drops messages that are still needed,"
                f" set it to {required}"
            )
        retention = int(config.get("retention.ms", "-1"))
        if 0 <= retention < self.shortest_retention_ms:
            problems.append(
                f"topic {self.name}: retention.ms={retention} deletes messages before they are"
                f" used, set it to {self.shortest_retention_ms} or more"
            )
        largest = int(config.get("max.message.bytes", str(_MIN_MESSAGE_BYTES)))
        if largest < _MIN_MESSAGE_BYTES:
            problems.append(
                f"topic {self.name}: max.message.bytes={largest} refuses messages of queries with"
                f" many partitions, set it to {_MIN_MESSAGE_BYTES} or more"
            )
        return problems


def offsets_topic(name: str, partitions: int, replication_factor: int | None) -> TopicSpec:
    """`processed-offsets`: every observation counts, so it is never compacted."""
    config = {"cleanup.policy": "delete", "retention.ms": str(7 * _DAY_MS), **_COMMON_CONFIG}
    return TopicSpec(name, partitions, replication_factor, config)


def lag_topic(name: str, partitions: int, replication_factor: int | None) -> TopicSpec:
    """`consumer-lag`: the newest event of a query counts, the older ones for a day."""
    config = {
        "cleanup.policy": "compact,delete",
        "retention.ms": str(_DAY_MS),
        "segment.ms": str(_HOUR_MS),
        **_COMMON_CONFIG,
    }
    return TopicSpec(name, partitions, replication_factor, config, 600_000)


def own_topics(settings: Settings) -> list[TopicSpec]:
    """The topics of observations, of lag events and, if configured, of partition records."""
    partitions, replicas = settings.topic_partitions, settings.topic_replication_factor
    topics = [
        offsets_topic(settings.offsets_topic, partitions, replicas),
        lag_topic(settings.lag_topic, partitions, replicas),
    ]
    if settings.partition_records:
        # As on `consumer-lag`: the newest record of a key counts, and each is published again.
        topics.append(lag_topic(settings.partition_topic, partitions, replicas))
    return topics


def own_topic_names(settings: Settings) -> frozenset[str]:
    return frozenset(topic.name for topic in own_topics(settings))


def feedback_topics(
    own: frozenset[str], topics: Collection[str] | None, processed: Collection[str] | None
) -> list[str]:
    """The topics of `own` that a source reads beside others: each of its batches adds records to
    them, so that it never catches up. `topics`: those that it names, perhaps on purpose."""
    if topics is not None or not processed or own.issuperset(processed):
        return []
    return sorted(own.intersection(processed))


def key_of(query_id: str) -> bytes:
    """The record key of every message about a query."""
    return query_id.encode()


def partition_of(query_id: str, partitions: int) -> int:
    return partition_of_key(key_of(query_id), partitions)


@lru_cache(maxsize=100_000)  # needed for every query every second, and hashed in Python
def partition_of_key(key: bytes, partitions: int) -> int:
    """Java's default partitioner: murmur2 of the key."""
    # Imported here: it loads all of aiokafka, which the import of a driver avoids.
    from aiokafka.partitioner import murmur2

    return int((murmur2(key) & 0x7FFFFFFF) % partitions)


class LagPartitions:
    """The partition of a query's events on `consumer-lag`: by its id, as on every topic; a query
    that has a partition to itself has one of the last partitions.

    The ids of all other queries are spread over the partitions before those.
    """

    def __init__(self, own: Sequence[str]) -> None:
        """`own`: names or ids of the queries that have a partition to themselves, in order."""
        self._own = {name_or_id: at for at, name_or_id in enumerate(own)}
        self._logged = False

    def choose(self, query_id: str, query: str | None, partitions: int) -> int:
        """The partition of the query with that id and name, of so many."""
        own = self._own.get(query_id, self._own.get(query or ""))
        shared = partitions - len(self._own)
        if shared < 1:
            if not self._logged:
                self._logged = True
                _log.error(
                    "own_partitions names %d queries, and the topic has %d partitions: it needs"
                    " one more at least; no query has one to itself",
                    len(self._own),
                    partitions,
                )
            return partition_of(query_id, partitions)
        return partition_of(query_id, shared) if own is None else shared + own

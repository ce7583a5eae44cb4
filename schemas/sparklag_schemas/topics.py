"""The two topics: how each must be set up, and which partition a query's messages are in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from aiokafka.partitioner import murmur2

from sparklag_schemas.settings import Settings

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_MIN_MESSAGE_BYTES = 1_048_588
"""Kafka's own default of `max.message.bytes`: a topic set below it refuses wide queries."""


@dataclass(frozen=True)
class TopicSpec:
    """What a topic of ours must be: `config` are the settings it is created with."""

    name: str
    partitions: int
    replication_factor: int | None
    """None: 3, or as many as there are brokers."""
    cleanup_policy: frozenset[str]
    config: Mapping[str, str] = field(default_factory=dict)
    shortest_retention_ms: int = _HOUR_MS

    def problems(self, config: Mapping[str, str]) -> list[str]:
        """Sentences on the settings in `config` (name to value) that would lose data."""
        found = []
        policy = set(config.get("cleanup.policy", "delete").split(","))
        if not policy <= self.cleanup_policy:
            lost = ",".join(sorted(policy))
            want = ",".join(sorted(self.cleanup_policy))
            found.append(
                f"topic {self.name}: cleanup.policy={lost} drops messages that are still needed,"
                f" set it to {want}"
            )
        retention = int(config.get("retention.ms", "-1"))
        if 0 <= retention < self.shortest_retention_ms:
            found.append(
                f"topic {self.name}: retention.ms={retention} deletes messages before they are"
                f" used, set it to {self.shortest_retention_ms} or more"
            )
        largest = int(config.get("max.message.bytes", str(_MIN_MESSAGE_BYTES)))
        if largest < _MIN_MESSAGE_BYTES:
            found.append(
                f"topic {self.name}: max.message.bytes={largest} refuses messages of queries with"
                f" many partitions, set it to {_MIN_MESSAGE_BYTES} or more"
            )
        return found


def offsets_topic(name: str, partitions: int, replication_factor: int | None) -> TopicSpec:
    """`processed-offsets`: every observation counts, so it is never compacted."""
    return TopicSpec(
        name,
        partitions,
        replication_factor,
        cleanup_policy=frozenset({"delete"}),
        config={
            "cleanup.policy": "delete",
            "retention.ms": str(7 * _DAY_MS),
            "max.message.bytes": str(8 * 1024 * 1024),
        },
    )


def lag_topic(name: str, partitions: int, replication_factor: int | None) -> TopicSpec:
    """`consumer-lag`: the newest event of a query counts, the older ones for a day."""
    return TopicSpec(
        name,
        partitions,
        replication_factor,
        cleanup_policy=frozenset({"compact", "delete"}),
        config={
            "cleanup.policy": "compact,delete",
            "retention.ms": str(_DAY_MS),
            "segment.ms": str(_HOUR_MS),
            "max.message.bytes": str(8 * 1024 * 1024),
        },
        shortest_retention_ms=600_000,
    )


def own_topics(settings: Settings) -> list[TopicSpec]:
    """Both topics as the settings want them."""
    partitions, replicas = settings.topic_partitions, settings.topic_replication_factor
    return [
        offsets_topic(settings.offsets_topic, partitions, replicas),
        lag_topic(settings.lag_topic, partitions, replicas),
    ]


def key_of(query_id: str) -> bytes:
    """The record key of every message about a query."""
    return query_id.encode()


@lru_cache(maxsize=100_000)  # asked of every query every second, and hashed in Python
def partition_of(query_id: str, partitions: int) -> int:
    """The partition of a query's messages: Java's default partitioner (murmur2 of the key)."""
    return int((murmur2(key_of(query_id)) & 0x7FFFFFFF) % partitions)

"""How far behind a checkpoint is. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparklag_kafka.brokers.log_bounds import TopicBounds
from sparklag_offsets.checkpoints.position import CheckpointPosition
from sparklag_schemas import Offsets


@dataclass(frozen=True)
class SourceLag:
    """Of one source's processed offsets. None where it is not known; `reasons` has the reason."""

    latest: dict[str, dict[int, int | None]]
    lag: dict[str, dict[int, int | None]]
    reasons: dict[str, dict[int, str]]


def topics_of(position: CheckpointPosition) -> set[str]:
    """All topics in it."""
    return {
        topic
        for source in position.sources
        for offsets in (source.processed, source.planned)
        for topic in offsets or {}
    }


def lag_of(processed: Offsets | None, bounds: Mapping[str, TopicBounds]) -> SourceLag:
    """Latest minus processed. A negative lag is None: the topic was recreated."""
    result = SourceLag({}, {}, {})
    for topic, partitions in (processed or {}).items():
        topic_bounds = bounds[topic]
        ends = result.latest[topic] = {}
        lags = result.lag[topic] = {}
        for partition, offset in partitions.items():
            latest = topic_bounds.latest.get(partition)
            ends[partition], lags[partition] = latest, None
            if latest is None:
                result.reasons.setdefault(topic, {})[partition] = topic_bounds.reason(partition)
            elif latest < offset:
                reason = "its log ends before the processed offset: the topic was recreated"
                result.reasons.setdefault(topic, {})[partition] = reason
            else:
                lags[partition] = latest - offset
    return result

"""To which topic a position belongs, and whether it can be measured there. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sparklag_schemas import PartitionLag, TopicLag
from sparklag_service.enrichment.cluster_offsets import Topic
from sparklag_service.enrichment.log_end_history import LatestOffset
from sparklag_service.evaluation.trends import Verdict
from sparklag_service.tracking.query_state import TrackedSource

LOST_OR_FOREIGN: Final = "its leader lost records or has not caught up, or it is of another cluster"
_RECREATED: Final = "the topic was deleted and recreated: the position belongs to the old topic"
_WAS_INSIDE: Final = ("RECREATED", "GONE")
"""Statuses of a position that was once inside its log."""


def topic_id_of(
    topic: Topic,
    processed: Mapping[int, int],
    before: TopicLag | None,
    latest: Mapping[int, LatestOffset],
) -> str | None:
    """The id of the topic that the position belongs to."""
    if before is not None and before.topic_id is not None and before.topic_id == topic.topic_id:
        return topic.topic_id
    # An unmoved position still belongs to the topic in which it was reached, and so does the end of
    # a batch that began there.
    if before and processed and (_is_unmoved(before, processed) or _is_beyond(processed, latest)):
        return before.topic_id or topic.topic_id
    if topic.topic_id is None and before is not None:
        was_recreated = any(partition.status == "RECREATED" for partition in before.partitions)
        return None if was_recreated else before.topic_id
    return topic.topic_id


def _is_beyond(processed: Mapping[int, int], latest: Mapping[int, LatestOffset]) -> bool:
    """Returns whether the log of some partition ends before the position."""
    reads = ((latest.get(number), at) for number, at in processed.items())
    return any(read is not None and read.offset < at for read, at in reads)


def _is_unmoved(before: TopicLag, processed: Mapping[int, int]) -> bool:
    """Returns whether no partition was moved or added."""
    count = 0
    for partition in before.partitions:
        if partition.processed_offset is not None:
            if processed.get(partition.partition) != partition.processed_offset:
                return False
            count += 1
    return count == len(processed)


def was_inside(partition: PartitionLag) -> bool:
    """Returns whether the position was inside the log at some time."""
    return partition.lag is not None or partition.status in _WAS_INSIDE


def obstacle_of(
    source: TrackedSource, name: str, topic: Topic, topic_id: str | None
) -> Verdict | None:
    """Why the whole topic cannot be measured. None: no obstacle."""
    if source.cluster is None:
        return Verdict("UNKNOWN", "its brokers belong to no configured cluster")
    if topic.gone:
        return Verdict("GONE", topic.missing or f"topic {name} does not exist")
    if topic.topic_id is not None and topic.topic_id != topic_id:
        return Verdict("RECREATED", _RECREATED)
    return None


def misfit(
    name: str,
    topic: Topic,
    processed: Mapping[int, int],
    latest: Mapping[int, LatestOffset],
    previous: Sequence[PartitionLag],
    requested_s: float,
) -> Verdict | None:
    """Why the position is probably of a topic of another cluster: it does not fit in one partition,
    and no partition ever had a lag. Where others fit, it is by chance."""
    if any(map(was_inside, previous)):
        return None
    for number, at in processed.items():
        read = latest.get(number)
        if read is None:
            if topic.numbers and number not in topic.numbers:
                return Verdict("UNKNOWN", f"topic {name} never had partition {number}")
        elif read.offset < at and read.requested_s >= requested_s:
            reason = f"partition {number}: {ends_before(read.offset, at)}: {LOST_OR_FOREIGN}"
            return Verdict("UNKNOWN", reason)
    return None


def ends_before(latest: int, processed: int) -> str:
    """What is wrong with a position past its log."""
    return f"the log ends at {latest}, before the processed offset {processed}"


def rewound_from_of(processed: int | None, old: PartitionLag | None) -> int | None:
    """The highest offset before the query went back, until it is reached again."""
    if processed is None or old is None or old.processed_offset is None:
        return None
    if old.status == "RECREATED" and processed != old.processed_offset:
        # A broker without topic ids: this position is the first in the new topic.
        return None
    farthest = max(old.processed_offset, old.rewound_from or 0)
    return farthest if processed < farthest else None

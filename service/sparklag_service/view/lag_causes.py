"""Why a query lags, by its last batch and where its lag is: in a few words each. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sparklag_schemas import Batch, LagEvent, PartitionLag, TopicLag
from sparklag_schemas.formatting import number, size, span

_SKEWED: Final = 0.5
"""A partition that holds more of the lag than this, and than twice its part, is worth a line."""
_PHASE_SHARE: Final = 0.1
"""A phase that takes less of its batch is not told."""
_WHOLE_BATCH: Final = "triggerExecution"


def causes(event: LagEvent, now_ms: int) -> Iterator[str]:
    """What took its time, what holds it back, and how old its watermark is."""
    batch = event.batch
    if batch is not None:
        phases = _phases(batch)
        if phases:
            yield phases
        if batch.rate_limited:
            yield "rate limited: there was more to read than it may in a batch"
    skewed = _skew(event)
    if skewed:
        yield skewed
    if batch is not None and batch.state_rows is not None:
        memory = batch.state_memory_bytes
        yield f"state {batch.state_rows:,} rows" + (f" in {size(memory)}" if memory else "")
    if batch is not None and batch.watermark_at:
        yield _watermark(batch.watermark_at, batch.max_event_time_at, now_ms)


def _phases(batch: Batch) -> str:
    whole = batch.duration_ms or batch.phases_ms.get(_WHOLE_BATCH) or 0
    parts = sorted(
        ((ms, name) for name, ms in batch.phases_ms.items() if name != _WHOLE_BATCH), reverse=True
    )
    told = [f"{name} {span(ms / 1000)}" for ms, name in parts if ms > whole * _PHASE_SHARE]
    return f"the batch took {', '.join(told[:3])}" if told else ""


def _skew(event: LagEvent) -> str:
    if event.skew is None or not event.max_lag:
        return ""
    lagging = [
        (topic, partition)
        for topic in event.topics
        for partition in topic.partitions
        if partition.lag is not None
    ]
    if event.skew < _SKEWED or event.skew * len(lagging) < 2:
        return ""
    topic, partition = max(lagging, key=lambda found: found[1].lag or 0)
    return f"skewed: {event.skew:.0%} of the lag is in {place(topic, partition)}"


def _watermark(watermark_at: int, max_event_time_at: int | None, now_ms: int) -> str:
    text = f"watermark {span(max(0.0, (now_ms - watermark_at) / 1000))} ago"
    if max_event_time_at is not None and max_event_time_at > watermark_at:
        behind_s = (max_event_time_at - watermark_at) / 1000
        text += f", {number(behind_s)} s behind the newest event"
    return text


def place(topic: TopicLag, partition: PartitionLag) -> str:
    """A partition by name."""
    return f"{topic.topic}[{partition.partition}]"

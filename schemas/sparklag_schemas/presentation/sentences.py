"""A lag event as text for people: a few lines for the person on call. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Annotated, Final

from msgspec import Meta, Struct

from sparklag_schemas import Batch, LagEvent, PartitionLag, RunningBatch, TopicLag
from sparklag_schemas.messages.enumerations import traits_of
from sparklag_schemas.messages.query_names import has_ended
from sparklag_schemas.presentation.rows import QueryLag, partitions_of, worst_partition
from sparklag_schemas.text import formatting
from sparklag_schemas.text.formatting import (
    OVERDUE,
    ago,
    clock_time,
    number,
    per_second,
    size,
    span,
    trend,
    waiting,
)
from sparklag_schemas.text.printable import printable
from sparklag_schemas.timestamps import epoch_ms

_ACTIVITIES: Final = {
    "running": "; the next one is running",
    "waiting": "; waiting for data or trigger",
}
_METHODS: Final = {"sampled": "from its timestamp", "interpolated": "estimated from log growth"}
_SKEWED: Final = 0.5
"""A partition is shown from this share of the lag on, if that is at least twice an even share."""
_PHASE_SHARE: Final = 0.1
"""A phase with a smaller share of its batch is not shown."""
_STUCK_S: Final = 30.0
"""The shortest time that is shown: observations are up to 10 s apart."""
_WHOLE_BATCH: Final = "triggerExecution"


class Line(Struct, frozen=True):
    """One fact."""

    heading: Annotated[str, Meta(description="What it is about, in a word or two.")]
    text: Annotated[str, Meta(description="The fact, in a sentence.")]


class Explanation(Struct, frozen=True):
    """A query's lag in sentences, as `sparklag lag` shows it. The text may change with versions."""

    status: Annotated[str, Meta(description="The status, since when, and why.")]
    lines: Annotated[list[Line], Meta(description="How far behind, how fast, and why.")]


def explanation(event: LagEvent, now_ms: int) -> Explanation:
    """The status and all lines."""
    return Explanation(
        status(event, now_ms), [Line(heading, text) for heading, text in lines(event, now_ms)]
    )


def lines(event: LagEvent, now_ms: int) -> list[tuple[str, str]]:
    """Heading and text: how far behind, how fast, how long until data is lost, why."""
    step = "last commit" if traits_of(event.origin).commits_offsets else "last batch"
    causes = () if has_ended(event.status) else _causes(event, now_ms)
    texts = {
        "lag": _lag(event),
        "time lag": _time_lag(event),
        "waiting": _waiting(event, now_ms),
        "trend": _trend(event),
        "catch-up": _catch_up(event),
        "headroom": _headroom(event, now_ms),
        step: _last_step(event, now_ms),
        "group": _group(event),
        "running batch": _running_batch(event.running_batch) if event.running_batch else "",
        "why": "; ".join(filter(None, causes)),
        "observed": _observed(event, now_ms),
        "last measured": ago(event.measured_at, now_ms),
        "replaced": f"by query {event.superseded_by}" if event.superseded_by else "",
    }
    return [(heading, text) for heading, text in texts.items() if text]


def html(event: LagEvent) -> str:
    """The name, the status and all lines now, as HTML for a notebook."""
    now_ms = epoch_ms()
    texts = [
        f"{event.display_name}  {status(event, now_ms)}",
        *(f"{heading:<13}  {text}" for heading, text in lines(event, now_ms)),
    ]
    return f"<pre>{escape(chr(10).join(printable(text, 1_000) for text in texts))}</pre>"


def status(event: QueryLag, now_ms: int) -> str:
    """The status, since when, and its reason."""
    since = ""
    if event.status != "OK" and event.status_since is not None:
        since = f" for {span(max(0.0, (now_ms - event.status_since) / 1000))}"
    return f"{event.status}{since}{f': {event.reason}' if event.reason else ''}"


def time_lag(partition: PartitionLag) -> str:
    """The age of a partition's first unprocessed record; `≥` where that is its lower bound."""
    age = formatting.time_lag(partition.unread, partition.time_lag_s)
    return f"≥ {age}" if age and partition.time_lag_method == "floor" else age


def _lag(event: LagEvent) -> str:
    parts = [] if event.total_lag is None else [f"{event.total_lag:,} records"]
    worst = worst_partition(event)
    if event.max_lag and worst is not None:
        parts += [f"{event.max_lag:,} in the worst partition", place(*worst)]
    if event.unknown_partitions:
        count = max(event.unknown_partitions, sum(1 for _ in partitions_of(event)))
        parts.append(f"unknown in {event.unknown_partitions:,} of {count:,} partitions")
    text = ", ".join(parts) or "unknown"
    if event.mode == "real-time":
        text += " since the last checkpoint"
        if event.unread_estimate is not None:
            text += f", at most {event.unread_estimate:,} of them not read yet"
        if event.trigger_interval_s is not None:
            text += f" (real-time mode, a checkpoint every {span(event.trigger_interval_s)})"
    if event.in_flight is not None:
        text += f", {event.in_flight:,} in the running batch"
    return text


def _time_lag(event: LagEvent) -> str:
    if event.max_time_lag_s is None or not event.total_lag:
        return ""
    topic, partition = max(
        (pair for pair in partitions_of(event) if pair[1].time_lag_s is not None),
        key=lambda pair: pair[1].time_lag_s or 0.0,
        default=(None, None),
    )
    if event.mode == "real-time":
        return f"{span(event.max_time_lag_s)}, of a record that is in no checkpoint yet"
    text = span(event.max_time_lag_s)
    if topic is None or partition is None:
        return text
    if partition.time_lag_method == "floor":
        text = f"at least {text}"
    how = _METHODS.get(partition.time_lag_method or "")
    return f"{text}, in {place(topic, partition)}{f', {how}' if how else ''}"


def _waiting(event: LagEvent, now_ms: int) -> str:
    open_ = [p.open_transaction for _, p in partitions_of(event) if p.open_transaction is not None]
    if not open_:
        return ""
    return waiting(sum(each.records for each in open_), min(each.since for each in open_), now_ms)


def _trend(event: LagEvent) -> str:
    if event.input_rate is None and event.processed_rate is None:
        return ""
    text = f"{trend(event.lag_trend)}: input {per_second(event.input_rate, ' records')}"
    if event.processed_rate is not None:
        text += f", processed {per_second(event.processed_rate, ' records')}"
    return text


def _catch_up(event: LagEvent) -> str:
    if not event.total_lag:
        return ""
    if event.catch_up_s is not None:
        text = span(event.catch_up_s)
        if (event.lag_trend or 0) > 0 and event.batch_rate is not None:
            # While it waits between two batches, the lag grows.
            text += f" at {per_second(event.batch_rate, ' records')}"
        return text
    why = event.catch_up_reason or ""
    # The reason continues with rates that are already in the line before.
    return why if why.startswith(OVERDUE) else why.partition(":")[0]


def _headroom(event: LagEvent, now_ms: int) -> str:
    facts = []
    if event.lost_records:
        facts.append(f"{event.lost_records:,} records were deleted before they were read")
    if event.loss_expected_at is not None:
        left_s = max(0.0, (event.loss_expected_at - now_ms) / 1000)
        when = clock_time(event.loss_expected_at, now_ms)
        facts.append(f"retention deletes unread records in {span(left_s)} ({when}) at these rates")
    elif event.min_headroom_s is not None:
        facts.append(f"{span(event.min_headroom_s)} before retention; the query stays ahead of it")
    elif event.min_headroom_records is not None:
        facts.append(f"{event.min_headroom_records:,} records before retention")
    return "; ".join(facts)


def _last_step(event: LagEvent, now_ms: int) -> str:
    if traits_of(event.origin).commits_offsets:
        if event.processed_at is None:
            return "none observed yet"
        rate = "" if event.commit_rate is None else f", {per_second(event.commit_rate, ' commits')}"
        return f"{ago(event.processed_at, now_ms)}{rate}"
    if event.batch_id is None and event.processed_at is None:
        return "none completed yet" + _ACTIVITIES.get(event.activity or "", "")
    which = f"{event.batch_id}, " if event.batch_id is not None else ""
    text = f"{which}completed {ago(event.processed_at, now_ms)}"
    if (batch := event.batch) is not None:
        text += f", {batch.rows:,} rows"
        if batch.duration_ms is not None:
            text += f" in {span(batch.duration_ms / 1000)}"
    usual = []
    if event.usual_batch_s is not None:
        usual.append(f"up to {span(event.usual_batch_s)}")
    if event.usual_interval_s is not None:
        usual.append(f"one every {span(event.usual_interval_s)}")
    if usual:
        text += f" (usually {', '.join(usual)})"
    return text + _ACTIVITIES.get(event.activity or "", "")


def _group(event: LagEvent) -> str:
    group = event.group
    if group is None or group.state is None:
        return ""
    text = group.state
    if group.members is not None:
        text += f", {group.members:,} {'member' if group.members == 1 else 'members'}"
    if group.members_without_partitions:
        text += f", {group.members_without_partitions:,} of them without partitions"
    return text if group.coordinator is None else f"{text}, coordinator {group.coordinator}"


def _running_batch(batch: RunningBatch) -> str:
    number = "" if batch.batch_id is None else f"{batch.batch_id}, "
    text = f"{number}for {span((batch.observed_at - batch.started_at) / 1000)}"
    if batch.tasks_total:
        text += f": {batch.tasks_done:,} of {batch.tasks_total:,} known tasks done"
    if batch.tasks_failed:
        text += f", {batch.tasks_failed:,} failed"
    if not batch.jobs:
        text += ", no Spark job now"
    elif batch.remaining_s is not None:
        text += f", {span(batch.remaining_s)} left at this rate"
    stuck_s = (batch.observed_at - batch.progressed_at) / 1000
    if stuck_s >= _STUCK_S:
        text += f", no progress for {span(stuck_s)}"
    if (task := batch.straggler) is not None:
        text += (
            f"; task {task.task_index} of stage {task.stage_id} on executor {task.executor_id}"
            f" ({task.host}) has run for {span(task.running_s)}, usually {span(task.mean_task_s)}"
        )
    return text


def _observed(event: LagEvent, now_ms: int) -> str:
    text = f"{ago(event.observed_at, now_ms)} by {traits_of(event.origin).label or event.origin}"
    return text if event.application is None else f"{text}, application {event.application}"


def _causes(event: LagEvent, now_ms: int) -> Iterator[str]:
    if (batch := event.batch) is not None:
        yield _phases(batch)
        if batch.rate_limited:
            yield "rate limited: more records were available than a batch may read"
    yield _skew(event)
    if batch is not None and batch.state_rows is not None:
        memory = batch.state_memory_bytes
        yield f"state {batch.state_rows:,} rows" + (f" in {size(memory)}" if memory else "")
    if batch is not None and batch.watermark_at:
        yield _watermark(batch.watermark_at, batch.max_event_time_at, now_ms)


def _phases(batch: Batch) -> str:
    whole = batch.duration_ms or batch.phases_ms.get(_WHOLE_BATCH) or 0
    least = max(whole * _PHASE_SHARE, 50)
    parts = sorted(
        ((ms, name) for name, ms in batch.phases_ms.items() if name != _WHOLE_BATCH), reverse=True
    )
    phases = [f"{name} {span(ms / 1000)}" for ms, name in parts if ms > least]
    return f"the batch took {', '.join(phases[:3])}" if phases else ""


def _skew(event: LagEvent) -> str:
    worst = worst_partition(event)
    if event.skew is None or event.skew < _SKEWED or not event.max_lag or worst is None:
        return ""
    known = sum(partition.unread is not None for _, partition in partitions_of(event))
    if event.skew * known < 2:
        return ""
    return f"skewed: {event.skew:.0%} of the lag is in {place(*worst)}"


def _watermark(watermark_at: int, max_event_time_at: int | None, now_ms: int) -> str:
    text = f"watermark {span(max(0.0, (now_ms - watermark_at) / 1000))} ago"
    if max_event_time_at is not None and max_event_time_at > watermark_at:
        text += f", {number((max_event_time_at - watermark_at) / 1000)} s behind the newest event"
    return text


def place(topic: TopicLag, partition: PartitionLag) -> str:
    """The name of a partition for people."""
    return f"{topic.topic}[{partition.partition}]"

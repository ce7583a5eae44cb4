"""sparklag's own families. What is null has no sample; ages are of the time of the scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from sparklag_schemas import LagEvent, PartitionLag, RunningBatch, TopicLag
from sparklag_service.metrics.families import Gauge, LabelledGauge, Number, gauges
from sparklag_service.metrics.scheme import NamedQuery, Scheme


def ages(now_ms: int) -> tuple[Gauge[LagEvent], ...]:
    """How long ago things happened. 0 where another machine's clock says they are still to come."""

    def since(attribute: str) -> Callable[[LagEvent], float | None]:
        def age(event: LagEvent) -> float | None:
            at_ms = getattr(event, attribute)
            return None if at_ms is None else max(0, now_ms - at_ms) / 1000

        return age

    return gauges(
        "sparklag_query_",
        ("processed_age_seconds", since("processed_at"), "Time since the last batch completed."),
        ("observed_age_seconds", since("observed_at"), "Time since the query was last observed."),
        ("measured_age_seconds", since("measured_at"), "Time since the latest offsets were read."),
    )


def _seconds(attribute: str) -> Callable[[LagEvent], float | None]:
    """Of an attribute in milliseconds."""

    def read(event: LagEvent) -> float | None:
        milliseconds = getattr(event, attribute)
        return None if milliseconds is None else milliseconds / 1000

    return read


def _batch(attribute: str, unit: float | None = None) -> Callable[[LagEvent], Number | None]:
    """An attribute of the event's batch; divided by `unit`, where one is given."""

    def read(event: LagEvent) -> Number | None:
        value: Number | None = None if event.batch is None else getattr(event.batch, attribute)
        return value if unit is None or value is None else value / unit

    return read


def _group(attribute: str) -> Callable[[LagEvent], Number | None]:
    """An attribute of the event's consumer group."""

    def read(event: LagEvent) -> Number | None:
        return None if event.group is None else getattr(event.group, attribute)

    return read


def _group_state(event: LagEvent) -> Iterable[tuple[dict[str, str], Number]]:
    if event.group is not None and event.group.state is not None:
        yield {"state": event.group.state}, 1


group_members = _group("members")


def _running_batch(
    read: Callable[[RunningBatch], Number | None],
) -> Callable[[LagEvent], Number | None]:
    """A value of the event's running batch, where that is known."""
    return lambda event: None if event.running_batch is None else read(event.running_batch)


def _running_tasks(event: LagEvent) -> Iterable[tuple[dict[str, str], Number]]:
    batch = event.running_batch
    if batch is None:
        return []
    waiting = max(0, batch.tasks_total - batch.tasks_done - batch.tasks_running)
    states = {"done": batch.tasks_done, "running": batch.tasks_running, "waiting": waiting}
    return [({"state": state}, tasks) for state, tasks in states.items()]


def _running(event: LagEvent) -> bool | None:
    return {"running": True, "waiting": False}.get(event.activity or "")


def _phases(event: LagEvent) -> Iterable[tuple[dict[str, str], Number]]:
    phases_ms = event.batch.phases_ms if event.batch is not None else {}
    return [({"phase": phase}, ms / 1000) for phase, ms in phases_ms.items()]


def _status(event: LagEvent) -> Iterable[tuple[dict[str, str], Number]]:
    # Only the present one: for hundreds of queries, eleven zeros each would tell nothing, and a
    # status that ends is stale from the next scrape on.
    return [({"status": event.status}, 1)]


def _info(event: LagEvent) -> Iterable[tuple[dict[str, str], Number]]:
    labels = {
        "run_id": event.run_id or "",
        "origin": event.origin,
        "measured_by": event.measured_by,
        "checkpoint_location": event.checkpoint_location or "",
    }
    return [(labels, 1)]


def _partitions(event: LagEvent) -> int:
    return sum(len(topic.partitions) for topic in event.topics)


_QUERY: tuple[Gauge[LagEvent] | LabelledGauge[LagEvent], ...] = (
    LabelledGauge(
        "sparklag_query_info",
        "Its run, the origin of its position, what measured it, its checkpoint.",
        _info,
    ),
    LabelledGauge("sparklag_query_status", "1 for the present status: see its label.", _status),
    LabelledGauge(
        "sparklag_query_batch_phase_seconds",
        "Duration of a phase of the last completed batch.",
        _phases,
    ),
    LabelledGauge(
        "sparklag_query_running_batch_tasks",
        "Tasks of the running batch's jobs, as far as they are submitted.",
        _running_tasks,
    ),
    *gauges(
        "sparklag_query_",
        (
            "status_since_timestamp_seconds",
            _seconds("status_since"),
            "Since when it has that status.",
        ),
        ("lag", "total_lag", "Sum of the partitions' lag, as far as it is known."),
        ("max_lag", "max_lag", "Lag of the worst partition, as far as it is known."),
        ("lag_seconds", "max_time_lag_s", "Age of the oldest unprocessed record when measured."),
        ("partitions", _partitions, "Partitions that the query reads."),
        ("unknown_partitions", "unknown_partitions", "Partitions of unknown lag, in no sum."),
        ("lost_records", "lost_records", "Records that were deleted before the query read them."),
        ("in_flight", "in_flight", "Records of the batch now running; they count as lag too."),
        ("input_rate", "input_rate", "Offsets that arrive in the query's topics, per second."),
        ("processed_rate", "processed_rate", "Offsets processed, per second."),
        ("batch_rate", "batch_rate", "Offsets processed per second while a batch runs."),
        ("lag_trend", "lag_trend", "Change of the lag, records per second; below 0 it falls."),
        ("catch_up_seconds", "catch_up_s", "Time until the lag is gone, if ever."),
        ("headroom_records", "min_headroom_records", "Least distance to the log's start, records."),
        (
            "headroom_seconds",
            "min_headroom_s",
            "Least time until retention deletes unread records.",
        ),
        (
            "loss_expected_timestamp_seconds",
            _seconds("loss_expected_at"),
            "When retention deletes unread records, if these rates last.",
        ),
        ("skew_ratio", "skew", "Share of the lag that is in the worst partition, 0 to 1."),
        ("running", _running, "Whether a batch ran at the last report."),
        (
            "running_batch_seconds",
            _running_batch(lambda batch: (batch.observed_at - batch.started_at) / 1000),
            "How long the running batch had run when it was last observed.",
        ),
        (
            "running_batch_stuck_seconds",
            _running_batch(lambda batch: (batch.observed_at - batch.progressed_at) / 1000),
            "Time without progress in the running batch, when it was last observed.",
        ),
        (
            "running_batch_remaining_seconds",
            _running_batch(lambda batch: batch.remaining_s),
            "Estimated time from that observation until the jobs of the batch end.",
        ),
        (
            "running_batch_straggler_seconds",
            _running_batch(lambda batch: batch.straggler.running_s if batch.straggler else None),
            "Running time of the straggler: the task that takes far longer than the others.",
        ),
        (
            "running_batch_failed_tasks",
            _running_batch(lambda batch: batch.tasks_failed),
            "Failed attempts of tasks in the running batch's jobs.",
        ),
        ("batch_id", "batch_id", "The last completed batch."),
        ("batch_rows", _batch("rows"), "Rows that the last completed batch read."),
        ("batch_seconds", _batch("duration_ms", 1000), "Duration of the last completed batch."),
        ("usual_batch_seconds", "usual_batch_s", "95th percentile of batch durations."),
        ("usual_interval_seconds", "usual_interval_s", "Median time between batch ends."),
        ("rate_limited", _batch("rate_limited"), "Whether the last batch left records unread."),
        ("state_rows", _batch("state_rows"), "Rows in the query's state stores."),
        ("state_memory_bytes", _batch("state_memory_bytes"), "Memory of the state stores."),
        ("watermark_timestamp_seconds", _batch("watermark_at", 1000), "The query's watermark."),
    ),
    LabelledGauge(
        "sparklag_group_state", "1 for the present state of a consumer group.", _group_state
    ),
    *gauges(
        "sparklag_group_",
        ("members", group_members, "Members of a consumer group."),
        (
            "members_without_partitions",
            _group("members_without_partitions"),
            "Members of a consumer group that no partition is assigned to.",
        ),
        ("coordinator", _group("coordinator"), "Node id of the broker that coordinates a group."),
        ("commit_rate", "commit_rate", "Commits of a consumer group that were seen, per second."),
    ),
)


def _worst_s(topic: TopicLag) -> float | None:
    ages_s = [p.time_lag_s for p in topic.partitions if p.time_lag_s is not None]
    return max(ages_s, default=None)


_TOPIC = gauges(
    "sparklag_topic_",
    ("lag", "total_lag", "Sum of the topic's lag, as far as it is known."),
    ("lag_seconds", _worst_s, "Age of the topic's oldest unprocessed record when measured."),
)


_PARTITION = gauges(
    "sparklag_partition_",
    ("processed_offset", "processed_offset", "Next offset that the query will read."),
    ("latest_offset", "latest_offset", "End of the log, or last stable offset."),
    ("earliest_offset", "earliest_offset", "Start of the log."),
    ("lag", "lag", "Latest minus processed offset, in records."),
    ("lag_seconds", "time_lag_s", "Age of the first unprocessed record when measured."),
    ("headroom_seconds", "headroom_s", "Time until retention deletes unread records."),
)


def _headroom_records(partition: PartitionLag) -> int | None:
    at, start = partition.processed_offset, partition.earliest_offset
    return None if at is None or start is None else max(0, at - start)


_PARTITION_AT_RISK = gauges(
    "sparklag_partition_",
    ("headroom_records", _headroom_records, "Distance to the log's start, where that advances."),
    ("lost_records", "lost_records", "Records that were deleted before the query read them."),
)


def _query_labels(query: NamedQuery) -> dict[str, str]:
    event = query.event
    return {"cluster": event.cluster, "query": event.display_name, "query_id": event.query_id}


def _topics(query: NamedQuery) -> Iterable[tuple[dict[str, str], TopicLag]]:
    """With a label `source` only where the query reads a topic through two."""
    readers = Counter((topic.cluster, topic.topic) for topic in query.event.topics)
    of_query = _query_labels(query)
    for topic in query.event.topics:
        labels = {**of_query, "cluster": topic.cluster or "", "topic": topic.topic}
        if readers[topic.cluster, topic.topic] > 1:
            labels["source"] = str(topic.source)
        yield labels, topic


NATIVE = Scheme(
    _QUERY, _TOPIC, _PARTITION, _query_labels, _topics, partition_at_risk=_PARTITION_AT_RISK
)

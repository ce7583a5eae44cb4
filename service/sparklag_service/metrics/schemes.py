"""sparklag's own families, and other tools' families with queries as groups (`[metrics] compat`).

A null value has no sample. Ages are as of the scrape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from sparklag_schemas import LagEvent, PartitionLag, RunningBatch, TopicLag
from sparklag_service.enrichment.cluster_offsets import ClusterMetadata
from sparklag_service.metrics.families import (
    Gauge,
    LabelledGauge,
    Labels,
    NamedQuery,
    Number,
    Scheme,
    attribute,
    gauges,
)
from sparklag_service.metrics.selection import as_group_reads, lag_sum, lags_of, offset_sum


def ages(now_ms: int) -> tuple[Gauge[LagEvent], ...]:
    """Families of ages. An age is 0 if another machine's clock is ahead."""

    def since(name: str) -> Callable[[LagEvent], float | None]:
        read = attribute(name)
        return lambda event: None if (ms := read(event)) is None else max(0, now_ms - ms) / 1000

    return gauges(
        "sparklag_query_",
        ("processed_age_seconds", since("processed_at"), "Time since the last batch completed."),
        ("observed_age_seconds", since("observed_at"), "Time since the query was last observed."),
        ("measured_age_seconds", since("measured_at"), "Time since the query was last measured."),
    )


def _seconds(path: str) -> Callable[[LagEvent], float | None]:
    read = attribute(path)
    return lambda event: None if (ms := read(event)) is None else ms / 1000


def _running_batch(
    read: Callable[[RunningBatch], Number | None],
) -> Callable[[LagEvent], Number | None]:
    return lambda event: None if event.running_batch is None else read(event.running_batch)


def _running_tasks(event: LagEvent) -> Iterable[tuple[Labels, Number]]:
    batch = event.running_batch
    if batch is None:
        return []
    waiting = max(0, batch.tasks_total - batch.tasks_done - batch.tasks_running)
    states = {"done": batch.tasks_done, "running": batch.tasks_running, "waiting": waiting}
    return [({"state": state}, tasks) for state, tasks in states.items()]


def _phases(event: LagEvent) -> Iterable[tuple[Labels, Number]]:
    phases_ms = event.batch.phases_ms if event.batch is not None else {}
    return [({"phase": phase}, ms / 1000) for phase, ms in phases_ms.items()]


def _info(event: LagEvent) -> Iterable[tuple[Labels, Number]]:
    labels = {
        "run_id": event.run_id or "",
        "origin": event.origin,
        "measured_by": event.measured_by,
        "checkpoint_location": event.checkpoint_location or "",
    }
    return [(labels, 1)]


def _group_state(event: LagEvent) -> Iterable[tuple[Labels, Number]]:
    if event.group is not None and event.group.state is not None:
        yield {"state": event.group.state}, 1


_QUERY: tuple[Gauge[LagEvent] | LabelledGauge[LagEvent], ...] = (
    LabelledGauge(
        "sparklag_query_info",
        "Its run, the origin of its position, what measured it, its checkpoint.",
        _info,
    ),
    # Only the current status: eleven zeros for each query would tell nothing, and an earlier status
    # is stale at the next scrape.
    LabelledGauge(
        "sparklag_query_status",
        "1 for the present status: see its label.",
        lambda event: [({"status": event.status}, 1)],
    ),
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
        ("lag", "total_lag", "Lag: sum of the partitions' lag, as far as it is known."),
        ("max_lag", "max_lag", "Lag of the worst partition, as far as it is known."),
        ("lag_seconds", "max_time_lag_s", "Time lag: age of the first unprocessed record."),
        (
            "partitions",
            lambda event: sum(len(topic.partitions) for topic in event.topics),
            "Partitions that the query reads.",
        ),
        ("unknown_partitions", "unknown_partitions", "Partitions of unknown lag, in no sum."),
        ("lost_records", "lost_records", "Records that were deleted before the query read them."),
        ("in_flight", "in_flight", "Records of the batch now running; they count as lag too."),
        ("input_rate", "input_rate", "Offsets that arrive in the query's topics, per second."),
        ("processed_rate", "processed_rate", "Offsets processed, per second."),
        ("batch_rate", "batch_rate", "Offsets processed per second while a batch runs."),
        ("lag_trend", "lag_trend", "Trend of the lag, records per second; below 0 it falls."),
        ("catch_up_seconds", "catch_up_s", "Catch-up: time until the lag is gone, if ever."),
        ("headroom_records", "min_headroom_records", "Headroom: records to the log's start."),
        (
            "headroom_seconds",
            "min_headroom_s",
            "Headroom: least time until retention deletes unprocessed records.",
        ),
        (
            "loss_expected_timestamp_seconds",
            _seconds("loss_expected_at"),
            "When retention deletes unread records, if these rates last.",
        ),
        ("skew_ratio", "skew", "Share of the lag that is in the worst partition, 0 to 1."),
        (
            "running",
            lambda event: {"running": True, "waiting": False}.get(event.activity or ""),
            "Whether a batch ran at the last report.",
        ),
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
            "running_batch.remaining_s",
            "Estimated time from that observation until the jobs of the batch end.",
        ),
        (
            "running_batch_straggler_seconds",
            _running_batch(lambda batch: batch.straggler.running_s if batch.straggler else None),
            "Running time of the straggler: the task that takes far longer than the others.",
        ),
        (
            "running_batch_failed_tasks",
            "running_batch.tasks_failed",
            "Failed attempts of tasks in the running batch's jobs.",
        ),
        ("failed_runs", "runs.failed", "Runs that ended with an exception."),
        ("batch_id", "batch_id", "The last completed batch."),
        ("batch_rows", "batch.rows", "Rows that the last completed batch read."),
        ("batch_seconds", _seconds("batch.duration_ms"), "Duration of the last completed batch."),
        ("usual_batch_seconds", "usual_batch_s", "95th percentile of batch durations."),
        ("usual_interval_seconds", "usual_interval_s", "Median time between batch ends."),
        ("rate_limited", "batch.rate_limited", "Whether the last batch left records unread."),
        ("state_rows", "batch.state_rows", "Rows in the query's state stores."),
        ("state_memory_bytes", "batch.state_memory_bytes", "Memory of the state stores."),
        ("watermark_timestamp_seconds", _seconds("batch.watermark_at"), "The query's watermark."),
    ),
    LabelledGauge(
        "sparklag_group_state", "1 for the present state of a consumer group.", _group_state
    ),
    *gauges(
        "sparklag_group_",
        ("members", "group.members", "Members of a consumer group."),
        (
            "members_without_partitions",
            "group.members_without_partitions",
            "Members of a consumer group that no partition is assigned to.",
        ),
        ("coordinator", "group.coordinator", "Node id of the broker that coordinates a group."),
        ("commit_rate", "commit_rate", "Commits of a consumer group that were seen, per second."),
    ),
)


def _worst_s(topic: TopicLag) -> float | None:
    return max((p.time_lag_s for p in topic.partitions if p.time_lag_s is not None), default=None)


_TOPIC = gauges(
    "sparklag_topic_",
    ("lag", "total_lag", "Lag: sum of the topic's lag, as far as it is known."),
    ("lag_seconds", _worst_s, "Time lag: the highest of the topic's partitions."),
)


_PARTITION = gauges(
    "sparklag_partition_",
    ("processed_offset", "processed_offset", "Next offset that the query will read."),
    ("latest_offset", "latest_offset", "End of the log, or last stable offset."),
    ("earliest_offset", "earliest_offset", "Start of the log."),
    ("lag", "unread", "Lag: `readable_lag`, or `lag` where that is null."),
    ("lag_seconds", "time_lag_s", "Time lag: age of the first unprocessed record."),
    ("headroom_seconds", "headroom_s", "Headroom: time until retention deletes unread records."),
)


def _headroom_records(partition: PartitionLag) -> int | None:
    at, start = partition.processed_offset, partition.earliest_offset
    return None if at is None or start is None else max(0, at - start)


_PARTITION_AT_RISK = gauges(
    "sparklag_partition_",
    ("headroom_records", _headroom_records, "Headroom in records, where the log's start advances."),
    ("lost_records", "lost_records", "Records that were deleted before the query read them."),
)


def _query_labels(query: NamedQuery) -> Labels:
    event = query.event
    return {"cluster": event.cluster, "query": event.display_name, "query_id": event.query_id}


def _native_topics(query: NamedQuery) -> Iterable[tuple[Labels, TopicLag]]:
    # A label `source` only if two sources of the query read the topic.
    readers = Counter((topic.cluster, topic.topic) for topic in query.event.topics)
    of_query = _query_labels(query)
    for topic in query.event.topics:
        labels = {**of_query, "cluster": topic.cluster or "", "topic": topic.topic}
        if readers[topic.cluster, topic.topic] > 1:
            labels["source"] = str(topic.source)
        yield labels, topic


NATIVE = Scheme(
    _QUERY, _TOPIC, _PARTITION, _query_labels, _native_topics, partition_at_risk=_PARTITION_AT_RISK
)


def _group_topics(query: NamedQuery) -> Iterable[tuple[Labels, TopicLag]]:
    for topic in as_group_reads(query.event):
        cluster = topic.cluster or ""
        yield {"cluster_name": cluster, "group": query.group, "topic": topic.topic}, topic


# kafka-lag-exporter (2023-01). The labels of members are empty: no consumer of a group has a
# query's partitions.
KAFKA_LAG_EXPORTER = Scheme(
    gauges(
        "kafka_consumergroup_group_",
        (
            "max_lag",
            lambda event: max(lags_of(event.topics), default=None),
            "Lag of the group's worst partition, in records.",
        ),
        ("max_lag_seconds", "max_time_lag_s", "Time lag of the group, in seconds."),
        ("sum_lag", lambda event: lag_sum(*event.topics), "Sum of the group's lag, in records."),
    ),
    gauges(
        "kafka_consumergroup_group_topic_",
        ("sum_lag", lag_sum, "Sum of the group's lag in a topic, in records."),
    ),
    gauges(
        "kafka_consumergroup_group_",
        ("offset", "processed_offset", "Next offset that the group will read."),
        ("lag", "lag", "The group's lag in a partition, in records."),
        ("lag_seconds", "time_lag_s", "The group's time lag in a partition, in seconds."),
    ),
    lambda query: {"cluster_name": query.event.cluster, "group": query.group},
    _group_topics,
    partition_end={"member_host": "", "consumer_id": "", "client_id": ""},
    log_partition=gauges(
        "kafka_partition_",
        ("latest_offset", "latest_offset", "End of a partition's log."),
        ("earliest_offset", "earliest_offset", "Start of a partition's log."),
    ),
    log_labels=lambda cluster, topic: {"cluster_name": cluster, "topic": topic},
    cluster=gauges(
        "kafka_consumergroup_",
        (
            "poll_time_ms",
            lambda of: None if of.group_poll_s is None else round(of.group_poll_s * 1000, 3),
            "Time that it took to read all groups, milliseconds.",
        ),
    ),
    cluster_labels=lambda cluster: {"cluster_name": cluster},
)


def _broker_info(cluster: ClusterMetadata) -> Iterable[tuple[Labels, int]]:
    for node_id, (host, port) in sorted(cluster.brokers.items()):
        yield {"id": str(node_id), "address": f"{host}:{port}"}, 1


def kafka_exporter(only_cluster: str | None) -> Scheme:
    """kafka_exporter's scheme, for the topics of one cluster; None: of all, with a label `cluster`.

    kafka_exporter (2026-01) serves one cluster, so its labels name none. For several clusters the
    label is as its own `--kafka.labels` would add it, so that their series remain distinct.
    """

    def of_cluster(cluster: str | None) -> Labels:
        return {} if only_cluster is not None else {"cluster": cluster or ""}

    def is_shown(cluster: str | None) -> bool:
        return only_cluster in (None, cluster)

    def topics(query: NamedQuery) -> Iterable[tuple[Labels, TopicLag]]:
        for topic in as_group_reads(query.event):
            if is_shown(topic.cluster):
                labels = {**of_cluster(topic.cluster), "consumergroup": query.group}
                yield {**labels, "topic": topic.topic}, topic

    def log_labels(cluster: str, topic: str) -> Labels | None:
        return {**of_cluster(cluster), "topic": topic} if is_shown(cluster) else None

    return Scheme(
        gauges("kafka_consumergroup_", ("members", "group.members", "Members of a group.")),
        gauges(
            "kafka_consumergroup_",
            ("current_offset_sum", offset_sum, "Sum of a group's offsets in a topic."),
            ("lag_sum", lag_sum, "Sum of a group's lag in a topic, in records."),
        ),
        gauges(
            "kafka_consumergroup_",
            (
                "current_offset",
                "processed_offset",
                "Next offset that a group reads in a partition.",
            ),
            ("lag", "lag", "A group's lag in a partition, in records."),
        ),
        lambda query: {**of_cluster(query.event.cluster), "consumergroup": query.group},
        topics,
        log_topic=gauges(
            "kafka_topic_",
            (
                "partitions",
                lambda topic: None if topic.assigned else len(topic.partitions),
                "Partitions of a topic; no sample where its readers name theirs.",
            ),
        ),
        log_partition=gauges(
            "kafka_topic_partition_",
            ("current_offset", "latest_offset", "End of a partition's log."),
            ("oldest_offset", "earliest_offset", "Start of a partition's log."),
        ),
        log_replicas=gauges(
            "kafka_topic_partition_",
            (
                "leader",
                lambda partition: partition.leader if partition.leader >= 0 else None,
                "Node id of the broker that leads a partition.",
            ),
            ("replicas", "replicas", "Replicas of a partition."),
            ("in_sync_replica", "in_sync", "Replicas of a partition that are in sync."),
            (
                "leader_is_preferred",
                lambda partition: partition.leader == partition.preferred_leader >= 0,
                "1 where its first replica leads it.",
            ),
            (
                "under_replicated_partition",
                lambda partition: partition.in_sync < partition.replicas,
                "1 where a replica lags behind.",
            ),
        ),
        log_labels=log_labels,
        cluster=(
            *gauges(
                "kafka_", ("brokers", lambda of: len(of.brokers) or None, "Brokers of the cluster.")
            ),
            LabelledGauge("kafka_broker_info", "A broker of the cluster.", _broker_info),
        ),
        cluster_labels=lambda cluster: of_cluster(cluster) if is_shown(cluster) else None,
    )

"""The families and labels of other tools, with queries as groups: `[metrics] compat`.

kafka-lag-exporter (2023-01): its members' labels are empty, as no consumer of a group has a query's
partitions.

kafka_exporter (2026-01): it serves one cluster, so its labels name none, and only the home
cluster's topics are shown. Where this service watches several, all are, with a label `cluster`, as
that tool's own `--kafka.labels` would add it: two clusters' series must not be one.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparklag_kafka.protocol.metadata import PartitionReplicas
from sparklag_schemas import TopicLag
from sparklag_service.enrichment.cluster_offsets import ClusterMetadata
from sparklag_service.metrics.families import LabelledGauge, gauges
from sparklag_service.metrics.native import group_members
from sparklag_service.metrics.scheme import Labels, NamedQuery, Scheme, as_group_reads, offset_sum


def _topics(query: NamedQuery) -> Iterable[tuple[Labels, TopicLag]]:
    for topic in as_group_reads(query.event):
        cluster = topic.cluster or ""
        yield {"cluster_name": cluster, "group": query.group, "topic": topic.topic}, topic


def _poll_time_ms(cluster: ClusterMetadata) -> float | None:
    return None if cluster.group_poll_s is None else round(cluster.group_poll_s * 1000, 3)


KAFKA_LAG_EXPORTER = Scheme(
    gauges(
        "kafka_consumergroup_group_",
        ("max_lag", "max_lag", "Lag of the group's worst partition, in records."),
        ("max_lag_seconds", "max_time_lag_s", "Age of the group's oldest unprocessed record."),
        ("sum_lag", "total_lag", "Sum of the group's lag, in records."),
    ),
    gauges(
        "kafka_consumergroup_group_topic_",
        ("sum_lag", "total_lag", "Sum of the group's lag in a topic, in records."),
    ),
    gauges(
        "kafka_consumergroup_group_",
        ("offset", "processed_offset", "Next offset that the group will read."),
        ("lag", "lag", "The group's lag in a partition, in records."),
        ("lag_seconds", "time_lag_s", "Age of the first unprocessed record in a partition."),
    ),
    lambda query: {"cluster_name": query.event.cluster, "group": query.group},
    _topics,
    partition_end={"member_host": "", "consumer_id": "", "client_id": ""},
    log_partition=gauges(
        "kafka_partition_",
        ("latest_offset", "latest_offset", "End of a partition's log."),
        ("earliest_offset", "earliest_offset", "Start of a partition's log."),
    ),
    log_labels=lambda cluster, topic: {"cluster_name": cluster, "topic": topic},
    cluster=gauges(
        "kafka_consumergroup_",
        ("poll_time_ms", _poll_time_ms, "Time that it took to read all groups, milliseconds."),
    ),
    cluster_labels=lambda cluster: {"cluster_name": cluster},
)


def _leader(partition: PartitionReplicas) -> int | None:
    return partition.leader if partition.leader >= 0 else None


def _leader_is_preferred(partition: PartitionReplicas) -> bool:
    return partition.leader == partition.preferred_leader >= 0


def _is_under_replicated(partition: PartitionReplicas) -> bool:
    return partition.in_sync < partition.replicas


def _brokers(cluster: ClusterMetadata) -> int | None:
    return len(cluster.brokers) or None


def _broker_info(cluster: ClusterMetadata) -> Iterable[tuple[Labels, int]]:
    for node_id, (host, port) in sorted(cluster.brokers.items()):
        yield {"id": str(node_id), "address": f"{host}:{port}"}, 1


def kafka_exporter(only_cluster: str | None) -> Scheme:
    """Its scheme: of that cluster's topics, or, where that is None, of all with a label more."""

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
        gauges("kafka_consumergroup_", ("members", group_members, "Members of a group.")),
        gauges(
            "kafka_consumergroup_",
            ("current_offset_sum", offset_sum, "Sum of a group's offsets in a topic."),
            ("lag_sum", "total_lag", "Sum of a group's lag in a topic, in records."),
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
            ("leader", _leader, "Node id of the broker that leads a partition."),
            ("replicas", "replicas", "Replicas of a partition."),
            ("in_sync_replica", "in_sync", "Replicas of a partition that are in sync."),
            ("leader_is_preferred", _leader_is_preferred, "1 where its first replica leads it."),
            ("under_replicated_partition", _is_under_replicated, "1 where a replica lags behind."),
        ),
        log_labels=log_labels,
        cluster=(
            *gauges("kafka_", ("brokers", _brokers, "Brokers of the cluster.")),
            LabelledGauge("kafka_broker_info", "A broker of the cluster.", _broker_info),
        ),
        cluster_labels=lambda cluster: of_cluster(cluster) if is_shown(cluster) else None,
    )

"""The families and labels of kafka_exporter (2026-01), with queries as groups.

It knows one cluster, so its labels name none, and only the home cluster's topics are shown. Where
this service watches several, all are, with a label `cluster`, as that tool's own `--kafka.labels`
would add it: two clusters' series must not be one.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from sparklag_schemas import PartitionLag, TopicLag
from sparklag_service.metrics.family import Gauge
from sparklag_service.metrics.label_text import label_set, pairs
from sparklag_service.metrics.scheme import Named, Scheme, as_group_reads, offset_sum

_TOPIC: tuple[Gauge[TopicLag], ...] = (
    Gauge(
        "kafka_consumergroup_current_offset_sum",
        "Sum of the next offsets that a group will read in a topic.",
        read=offset_sum,
    ),
    Gauge(
        "kafka_consumergroup_lag_sum",
        "Sum of a group's lag in a topic, in records.",
        read=attrgetter("total_lag"),
    ),
)
_PARTITION: tuple[Gauge[PartitionLag], ...] = (
    Gauge(
        "kafka_consumergroup_current_offset",
        "Next offset that a group will read in a partition.",
        read=attrgetter("processed_offset"),
    ),
    Gauge(
        "kafka_consumergroup_lag",
        "A group's lag in a partition, in records.",
        read=attrgetter("lag"),
    ),
)
_LOG_TOPIC: tuple[Gauge[TopicLag], ...] = (
    Gauge(
        "kafka_topic_partitions",
        "Partitions of a topic; no sample where its readers name theirs.",
        read=lambda topic: None if topic.assigned else len(topic.partitions),
    ),
)
_LOG_PARTITION: tuple[Gauge[PartitionLag], ...] = (
    Gauge(
        "kafka_topic_partition_current_offset",
        "End of a partition's log.",
        read=attrgetter("latest_offset"),
    ),
    Gauge(
        "kafka_topic_partition_oldest_offset",
        "Start of a partition's log.",
        read=attrgetter("earliest_offset"),
    ),
)


def kafka_exporter(only_cluster: str | None) -> Scheme:
    """Its scheme: of that cluster's topics, or, where that is None, of all with a label more."""

    def of_cluster(cluster: str | None) -> dict[str, str]:
        return {} if only_cluster is not None else {"cluster": cluster or ""}

    def shown(cluster: str | None) -> bool:
        return only_cluster in (None, cluster)

    def topics(named: Named) -> Iterable[tuple[str, TopicLag]]:
        for topic in filter(lambda topic: shown(topic.cluster), as_group_reads(named.event)):
            labels = of_cluster(topic.cluster)
            yield pairs(**labels, consumergroup=named.group, topic=topic.topic), topic

    def log_labels(cluster: str, topic: str) -> str | None:
        return pairs(**of_cluster(cluster), topic=topic) if shown(cluster) else None

    return Scheme(
        (),
        _TOPIC,
        _PARTITION,
        lambda named: label_set(**of_cluster(named.event.cluster), consumergroup=named.group),
        topics,
        log_topic=_LOG_TOPIC,
        log_partition=_LOG_PARTITION,
        log_labels=log_labels,
    )

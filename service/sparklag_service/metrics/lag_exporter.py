"""The families and labels of kafka-lag-exporter (2023-01), with queries as groups.

Its members' labels are empty: no consumer of a group has a query's partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from sparklag_schemas import LagEvent, PartitionLag, TopicLag
from sparklag_service.metrics.family import Gauge
from sparklag_service.metrics.label_text import label_set, pairs
from sparklag_service.metrics.scheme import Named, Scheme, as_group_reads

_QUERY: tuple[Gauge[LagEvent], ...] = (
    Gauge(
        "kafka_consumergroup_group_max_lag",
        "Lag of the group's worst partition, in records.",
        read=attrgetter("max_lag"),
    ),
    Gauge(
        "kafka_consumergroup_group_max_lag_seconds",
        "Age of the group's oldest unprocessed record, in seconds.",
        "seconds",
        read=attrgetter("max_time_lag_s"),
    ),
    Gauge(
        "kafka_consumergroup_group_sum_lag",
        "Sum of the group's lag, in records.",
        read=attrgetter("total_lag"),
    ),
)
_TOPIC: tuple[Gauge[TopicLag], ...] = (
    Gauge(
        "kafka_consumergroup_group_topic_sum_lag",
        "Sum of the group's lag in a topic, in records.",
        read=attrgetter("total_lag"),
    ),
)
_PARTITION: tuple[Gauge[PartitionLag], ...] = (
    Gauge(
        "kafka_consumergroup_group_offset",
        "Next offset that the group will read.",
        read=attrgetter("processed_offset"),
    ),
    Gauge(
        "kafka_consumergroup_group_lag",
        "The group's lag in a partition, in records.",
        read=attrgetter("lag"),
    ),
    Gauge(
        "kafka_consumergroup_group_lag_seconds",
        "Age of the group's first unprocessed record in a partition, in seconds.",
        "seconds",
        read=attrgetter("time_lag_s"),
    ),
)
_LOG_PARTITION: tuple[Gauge[PartitionLag], ...] = (
    Gauge(
        "kafka_partition_latest_offset",
        "End of a partition's log.",
        read=attrgetter("latest_offset"),
    ),
    Gauge(
        "kafka_partition_earliest_offset",
        "Start of a partition's log.",
        read=attrgetter("earliest_offset"),
    ),
)


def _query_labels(named: Named) -> str:
    return label_set(cluster_name=named.event.cluster, group=named.group)


def _topics(named: Named) -> Iterable[tuple[str, TopicLag]]:
    for topic in as_group_reads(named.event):
        cluster = topic.cluster or ""
        yield pairs(cluster_name=cluster, group=named.group, topic=topic.topic), topic


LAG_EXPORTER = Scheme(
    _QUERY,
    _TOPIC,
    _PARTITION,
    _query_labels,
    _topics,
    partition_end=f",{pairs(member_host='', consumer_id='', client_id='')}",
    log_partition=_LOG_PARTITION,
    log_labels=lambda cluster, topic: pairs(cluster_name=cluster, topic=topic),
)

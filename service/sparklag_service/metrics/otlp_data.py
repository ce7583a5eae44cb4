"""What is pushed to an OpenTelemetry collector, in its SDK's own values.

The names of the collector's kafkametrics receiver, with queries as groups, each cluster in a
resource of its own; and sparklag's own, which come out of a Prometheus exporter as `/metrics` has
them. The SDK's instruments are not used: they keep every attribute set that ever was, and merge
those beyond 2,000 into one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, TypeVar

from opentelemetry.sdk.metrics.export import (
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from sparklag_schemas import LagEvent, TopicLag
from sparklag_service.metrics.family import Family, Labelled, Number
from sparklag_service.metrics.native import AGES, NATIVE, query_labels, topic_labels
from sparklag_service.metrics.scheme import Named, as_group_reads, logs_of, offset_sum
from sparklag_service.metrics.selection import Selection
from sparklag_service.version import VERSION

BATCH_POINTS: Final = 5_000
"""In one request: a collector takes no more than some megabytes."""
CLUSTER_ATTRIBUTE: Final = "kafka.cluster.alias"

_UNITS: Final = {"seconds": "s", "bytes": "By", "ratio": "1"}
_SCOPE: Final = InstrumentationScope("sparklag", VERSION)

Attributes = dict[str, str | int]
Subject = TypeVar("Subject")


@dataclass(frozen=True)
class _Point:
    cluster: str | None
    """Whose resource it is in. None: sparklag's own."""
    name: str
    meaning: str
    unit: str
    attributes: Attributes
    value: Number


def batches(shown: Sequence[Named], selection: Selection, now_ns: int) -> Iterator[MetricsData]:
    """All points, in parts of at most BATCH_POINTS. What is null has none."""
    points: list[_Point] = []
    for point in _points(shown, selection, now_ns // 1_000_000):
        points.append(point)
        if len(points) == BATCH_POINTS:
            yield _metrics_data(points, now_ns)
            points = []
    if points:
        yield _metrics_data(points, now_ns)


def _metrics_data(points: Iterable[_Point], now_ns: int) -> MetricsData:
    grouped: dict[str | None, dict[str, tuple[_Point, list[NumberDataPoint]]]] = {}
    for point in points:
        metrics = grouped.setdefault(point.cluster, {})
        _, data = metrics.setdefault(point.name, (point, []))
        data.append(NumberDataPoint(point.attributes, 0, now_ns, point.value))
    return MetricsData(
        [
            ResourceMetrics(
                _resource(cluster),
                [ScopeMetrics(_SCOPE, [_metric(*each) for each in metrics.values()], "")],
                "",
            )
            for cluster, metrics in grouped.items()
        ]
    )


def _resource(cluster: str | None) -> Resource:
    known = {"service.name": "sparklag", "service.version": VERSION}
    if cluster is not None:
        known[CLUSTER_ATTRIBUTE] = cluster
    # With what OTEL_RESOURCE_ATTRIBUTES says, as everywhere.
    return Resource.create(known)


def _metric(first: _Point, points: Sequence[NumberDataPoint]) -> Metric:
    return Metric(first.name, first.meaning, first.unit, Gauge(points))


def _points(shown: Sequence[Named], selection: Selection, now_ms: int) -> Iterator[_Point]:
    events = [named.event for named in shown]
    yield from _own(events, selection, now_ms)
    if selection.topics:
        yield from _of_groups(shown, selection)
        yield from _of_logs(events, selection)


def _own(events: Sequence[LagEvent], selection: Selection, now_ms: int) -> Iterator[_Point]:
    queries: list[tuple[Any, LagEvent]] = [(query_labels(event), event) for event in events]
    for age in AGES:
        for attributes, event in queries:
            if (at_ms := age.read(event)) is not None:
                yield _own_point(age, attributes, max(0, now_ms - at_ms) / 1000)
    for family in NATIVE.query:
        if isinstance(family, Labelled):
            for attributes, event in queries:
                for more, value in family.read(event):
                    yield _own_point(family, {**attributes, **more}, value)
        else:
            yield from _read(family, family.read, queries)
    if not selection.topics:
        return
    topics = [
        (labels, topic)
        for event in events
        for labels, topic in topic_labels(event)
        if selection.takes_topic(topic.topic)
    ]
    for of_topic in NATIVE.topic:
        yield from _read(of_topic, of_topic.read, topics)
    if selection.partitions:
        partitions = [
            ({**labels, "partition": partition.partition}, partition)
            for labels, topic in topics
            for partition in topic.partitions
        ]
        for of_partition in NATIVE.partition:
            yield from _read(of_partition, of_partition.read, partitions)


def _read(
    family: Family,
    read: Callable[[Subject], Number | None],
    subjects: Iterable[tuple[Any, Subject]],
) -> Iterator[_Point]:
    for attributes, subject in subjects:
        if (value := read(subject)) is not None:
            yield _own_point(family, attributes, value)


def _own_point(family: Family, attributes: Attributes, value: Number) -> _Point:
    # `sparklag.query.lag_seconds` in `s` is what a Prometheus exporter calls as /metrics does.
    name = ".".join(family.name.split("_", 2))
    # A flag is a number: the SDK would take it for one too.
    value = int(value) if isinstance(value, bool) else value
    return _Point(None, name, family.meaning, _UNITS.get(family.unit, ""), attributes, value)


_GROUP_TOPIC: Final = (
    ("kafka.consumer_group.lag_sum", "Sum of a group's lag in a topic", attrgetter("total_lag")),
    ("kafka.consumer_group.offset_sum", "Sum of a group's offsets in a topic", offset_sum),
)
_GROUP_PARTITION: Final = (
    ("kafka.consumer_group.lag", "A group's lag in a partition", attrgetter("lag")),
    (
        "kafka.consumer_group.offset",
        "Next offset that a group reads in a partition",
        attrgetter("processed_offset"),
    ),
)
_LOG_PARTITION: Final = (
    ("kafka.partition.current_offset", "End of a partition's log", attrgetter("latest_offset")),
    ("kafka.partition.oldest_offset", "Start of a partition's log", attrgetter("earliest_offset")),
)


def _of_groups(shown: Sequence[Named], selection: Selection) -> Iterator[_Point]:
    topics = [
        (topic.cluster, {"group": named.group, "topic": topic.topic}, topic)
        for named in shown
        for topic in as_group_reads(named.event)
        if selection.takes_topic(topic.topic)
    ]
    yield from _of_receiver(_GROUP_TOPIC, topics)
    if selection.partitions:
        yield from _of_receiver(_GROUP_PARTITION, _partitions(topics))


def _of_logs(events: Iterable[LagEvent], selection: Selection) -> Iterator[_Point]:
    if not selection.partitions:
        return
    logs = logs_of(events, selection.takes_topic)
    topics = [(cluster, {"topic": log.topic}, log) for cluster, log in logs]
    yield from _of_receiver(_LOG_PARTITION, _partitions(topics))


def _partitions(topics: Iterable[tuple[Any, Any, TopicLag]]) -> list[tuple[Any, Any, Any]]:
    return [
        (cluster, {**attributes, "partition": partition.partition}, partition)
        for cluster, attributes, topic in topics
        for partition in topic.partitions
    ]


def _of_receiver(
    metrics: Iterable[tuple[str, str, Callable[[Any], Number | None]]],
    subjects: Sequence[tuple[Any, Any, Any]],
) -> Iterator[_Point]:
    for name, meaning, read in metrics:
        for cluster, attributes, subject in subjects:
            if (value := read(subject)) is not None:
                yield _Point(cluster, name, meaning, "1", attributes, value)

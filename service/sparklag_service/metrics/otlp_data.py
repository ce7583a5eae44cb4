"""What is pushed to an OpenTelemetry collector, in its SDK's own values.

The names of the collector's kafkametrics receiver, with queries as groups, each cluster in a
resource of its own; and sparklag's own, which come out of a Prometheus exporter as `/metrics` has
them. The SDK's instruments are not used: they keep every attribute set that ever was, and merge
those beyond 2,000 into one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

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

from sparklag_schemas import LagEvent
from sparklag_service import VERSION
from sparklag_service.metrics.families import Family, LabelledGauge, Number
from sparklag_service.metrics.native import NATIVE, ages, query_labels, topic_labels
from sparklag_service.metrics.scheme import (
    NamedQuery,
    Selection,
    as_group_reads,
    logs_of,
    offset_sum,
)

BATCH_POINTS: Final = 2_000
"""In one request: some hundred kilobytes. Making it holds the interpreter for a moment."""
CLUSTER_ATTRIBUTE: Final = "kafka.cluster.alias"

_UNITS: Final = {"seconds": "s", "bytes": "By", "ratio": "1"}
_SCOPE: Final = InstrumentationScope("sparklag", VERSION)

Attributes = dict[str, str | int]


class _Point(NamedTuple):
    cluster: str | None
    """Whose resource it is in. None: sparklag's own."""
    name: str
    meaning: str
    unit: str
    attributes: Attributes
    value: Number


def batches(
    shown: Sequence[NamedQuery], selection: Selection, now_ns: int
) -> Iterator[MetricsData]:
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
    attributes = {"service.name": "sparklag", "service.version": VERSION}
    if cluster is not None:
        attributes[CLUSTER_ATTRIBUTE] = cluster
    # Together with OTEL_RESOURCE_ATTRIBUTES, as everywhere.
    return Resource.create(attributes)


def _metric(first: _Point, points: Sequence[NumberDataPoint]) -> Metric:
    return Metric(first.name, first.meaning, first.unit, Gauge(points))


def _points(shown: Sequence[NamedQuery], selection: Selection, now_ms: int) -> Iterator[_Point]:
    # Topic after topic: a list of every partition would make Python's collector stop the service.
    for query in shown:
        yield from _of_query(query.event, now_ms)
        if selection.topics:
            yield from _of_topics(query.event, selection)
            yield from _of_group(query, selection)
    if selection.partitions:
        for cluster, log in logs_of((query.event for query in shown), selection.takes_topic):
            for partition in log.partitions:
                attributes: Attributes = {"topic": log.topic, "partition": partition.partition}
                yield from _of_receiver(_LOG_PARTITION, cluster, attributes, partition)


def _of_query(event: LagEvent, now_ms: int) -> Iterator[_Point]:
    labels: Attributes = {**query_labels(event)}
    for family in (*ages(now_ms), *NATIVE.query):
        if isinstance(family, LabelledGauge):
            for more, value in family.read(event):
                yield _own(family, {**labels, **more}, value)
        elif (of_query := family.read(event)) is not None:
            yield _own(family, labels, of_query)


def _of_topics(event: LagEvent, selection: Selection) -> Iterator[_Point]:
    for labels, topic in topic_labels(event):
        if not selection.takes_topic(topic.topic):
            continue
        for of_topic in NATIVE.topic:
            if (value := of_topic.read(topic)) is not None:
                yield _own(of_topic, {**labels}, value)
        for partition in topic.partitions if selection.partitions else ():
            attributes: Attributes = {**labels, "partition": partition.partition}
            for family in NATIVE.partition:
                if (value := family.read(partition)) is not None:
                    yield _own(family, attributes, value)


def _own(family: Family, attributes: Attributes, value: Number) -> _Point:
    # `sparklag.query.lag_seconds` in `s` is what a Prometheus exporter calls as /metrics does.
    name = ".".join(family.name.split("_", 2))
    # A flag is a number: the SDK would take it for one too.
    value = int(value) if isinstance(value, bool) else value
    return _Point(None, name, family.meaning, _UNITS.get(family.unit, ""), attributes, value)


_Receiver = tuple[tuple[str, str, Callable[[Any], Number | None]], ...]

_GROUP_TOPIC: Final[_Receiver] = (
    ("kafka.consumer_group.lag_sum", "Sum of a group's lag in a topic", attrgetter("total_lag")),
    ("kafka.consumer_group.offset_sum", "Sum of a group's offsets in a topic", offset_sum),
)
_GROUP_PARTITION: Final[_Receiver] = (
    ("kafka.consumer_group.lag", "A group's lag in a partition", attrgetter("lag")),
    (
        "kafka.consumer_group.offset",
        "Next offset that a group reads in a partition",
        attrgetter("processed_offset"),
    ),
)
_LOG_PARTITION: Final[_Receiver] = (
    ("kafka.partition.current_offset", "End of a partition's log", attrgetter("latest_offset")),
    ("kafka.partition.oldest_offset", "Start of a partition's log", attrgetter("earliest_offset")),
)


def _of_group(query: NamedQuery, selection: Selection) -> Iterator[_Point]:
    for topic in as_group_reads(query.event):
        if not selection.takes_topic(topic.topic):
            continue
        group: Attributes = {"group": query.group, "topic": topic.topic}
        yield from _of_receiver(_GROUP_TOPIC, topic.cluster, group, topic)
        for partition in topic.partitions if selection.partitions else ():
            attributes: Attributes = {**group, "partition": partition.partition}
            yield from _of_receiver(_GROUP_PARTITION, topic.cluster, attributes, partition)


def _of_receiver(
    metrics: _Receiver, cluster: str | None, attributes: Attributes, subject: object
) -> Iterator[_Point]:
    for name, meaning, read in metrics:
        if (value := read(subject)) is not None:
            yield _Point(cluster, name, meaning, "1", attributes, value)

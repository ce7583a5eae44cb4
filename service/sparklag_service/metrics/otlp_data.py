"""Metrics and traces of batches as objects of OpenTelemetry's SDK."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
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
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from sparklag_schemas import TopicLag
from sparklag_schemas.messages import headers
from sparklag_schemas.runtime.queue import by_count
from sparklag_service import VERSION
from sparklag_service.metrics.families import Family, LabelledGauge, NamedQuery, Number, gauges
from sparklag_service.metrics.families import Gauge as FamilyGauge
from sparklag_service.metrics.schemes import NATIVE, ages
from sparklag_service.metrics.selection import (
    Selection,
    Shown,
    as_group_reads,
    is_at_risk,
    lag_sum,
    offset_sum,
)
from sparklag_service.publishing.traces import PublishedTrace

_BATCH_TRACES: Final = 500
_KINDS: Final = {
    "callback": SpanKind.INTERNAL,
    "observation": SpanKind.PRODUCER,
    "measured": SpanKind.CONSUMER,
    "published": SpanKind.PRODUCER,
}


def batches_of_spans(traces: Sequence[PublishedTrace]) -> Iterator[list[ReadableSpan]]:
    """The spans of all traces, in batches of bounded size."""
    # `create` also adds OTEL_RESOURCE_ATTRIBUTES.
    in_driver = Resource.create({"service.name": "sparklag-driver"})
    in_service = Resource.create({"service.name": "sparklag", "service.version": VERSION})
    for chunk in by_count(traces, _BATCH_TRACES):
        spans = []
        for trace in chunk:
            parent = None
            for span in trace.spans:
                context = _context(span.context)
                spans.append(
                    ReadableSpan(
                        span.name,
                        context,
                        parent,
                        in_driver if span.in_driver else in_service,
                        trace.attributes,
                        kind=_KINDS[span.name],
                        start_time=span.began_at * 1_000_000,
                        # The clocks of the two machines may differ.
                        end_time=max(span.began_at, span.ended_at) * 1_000_000,
                        instrumentation_scope=SCOPE,
                    )
                )
                parent = context
        yield spans


def _context(context: headers.SpanContext) -> SpanContext:
    return SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )


BATCH_POINTS: Final = 2_000
"""Points in a request, some hundred kilobytes: encoding blocks the interpreter for milliseconds."""
CLUSTER_ATTRIBUTE: Final = "kafka.cluster.alias"
_UNITS: Final = {"seconds": "s", "bytes": "By", "ratio": "1"}
SCOPE: Final = InstrumentationScope("sparklag", VERSION)
Attributes = dict[str, str | int]
_GROUP: Final = gauges("kafka.consumer_group.", ("members", "group.members", "Members of a group"))
_GROUP_TOPIC: Final = gauges(
    "kafka.consumer_group.",
    ("lag_sum", lag_sum, "Sum of a group's lag in a topic"),
    ("offset_sum", offset_sum, "Sum of a group's offsets in a topic"),
)
_GROUP_PARTITION: Final = gauges(
    "kafka.consumer_group.",
    ("lag", "lag", "A group's lag in a partition"),
    ("offset", "processed_offset", "Next offset that a group reads in a partition"),
)
_LOG_PARTITION: Final = gauges(
    "kafka.partition.",
    ("current_offset", "latest_offset", "End of a partition's log"),
    ("oldest_offset", "earliest_offset", "Start of a partition's log"),
)


class _Point(NamedTuple):
    cluster: str | None
    """The alias in the point's resource. None: a metric of sparklag itself."""
    family: Family[Any]
    attributes: Attributes
    value: Number


def batches(
    measured: Sequence[NamedQuery], groups: Shown, selection: Selection, now_ns: int
) -> Iterator[MetricsData]:
    """All points, in batches of at most BATCH_POINTS. A null value has no point."""
    points = _points(measured, groups, selection, now_ns // 1_000_000)
    while batch := list(islice(points, BATCH_POINTS)):
        yield _metrics_data(batch, now_ns)


def _metrics_data(points: Iterable[_Point], now_ns: int) -> MetricsData:
    grouped: dict[str | None, dict[str, tuple[Family[Any], list[NumberDataPoint]]]] = {}
    for point in points:
        metrics = grouped.setdefault(point.cluster, {})
        _, data = metrics.setdefault(point.family.name, (point.family, []))
        # The SDK does not accept booleans.
        value = int(point.value) if isinstance(point.value, bool) else point.value
        data.append(NumberDataPoint(point.attributes, 0, now_ns, value))
    return MetricsData(
        [
            ResourceMetrics(
                _resource(cluster),
                [ScopeMetrics(SCOPE, [_metric(cluster, *data) for data in metrics.values()], "")],
                "",
            )
            for cluster, metrics in grouped.items()
        ]
    )


def _resource(cluster: str | None) -> Resource:
    attributes = {"service.name": "sparklag", "service.version": VERSION}
    if cluster is not None:
        attributes[CLUSTER_ATTRIBUTE] = cluster
    # `create` also adds OTEL_RESOURCE_ATTRIBUTES.
    return Resource.create(attributes)


def _metric(cluster: str | None, family: Family[Any], points: Sequence[NumberDataPoint]) -> Metric:
    if cluster is not None:
        return Metric(family.name, family.meaning, "1", Gauge(points))
    # A Prometheus exporter turns `sparklag.query.lag_seconds` in `s` into the name on `/metrics`.
    name = ".".join(family.name.split("_", 2))
    return Metric(name, family.meaning, _UNITS.get(family.unit, ""), Gauge(points))


def _points(
    measured: Sequence[NamedQuery], groups: Shown, selection: Selection, now_ms: int
) -> Iterator[_Point]:
    # One topic at a time: a list of every partition would trigger long garbage collections.
    for query in measured:
        yield from _of_query(query, selection, now_ms)
    for query in groups.queries:
        yield from _known(query.event.cluster, _GROUP, {"group": query.group}, query.event)
        for topic in as_group_reads(query.event) if selection.topics else ():
            labels: Attributes = {"group": query.group, "topic": topic.topic}
            families = (_GROUP_TOPIC, _GROUP_PARTITION)
            yield from _of_topic(topic.cluster, families, labels, topic, selection)
    for cluster, log in groups.logs if selection.partitions else ():
        for partition in log.partitions:
            attributes: Attributes = {"topic": log.topic, "partition": partition.partition}
            yield from _known(cluster, _LOG_PARTITION, attributes, partition)


def _of_query(query: NamedQuery, selection: Selection, now_ms: int) -> Iterator[_Point]:
    event = query.event
    labels: Attributes = {**NATIVE.query_labels(query)}
    for family in (*ages(now_ms), *NATIVE.query):
        if isinstance(family, LabelledGauge):
            for more, value in family.read(event):
                yield _Point(None, family, {**labels, **more}, value)
        else:
            yield from _known(None, (family,), labels, event)
    at_risk = NATIVE.partition_at_risk if is_at_risk(event) else ()
    families = (NATIVE.topic, (*NATIVE.partition, *at_risk))
    for of_topic, topic in NATIVE.topics(query) if selection.topics else ():
        yield from _of_topic(None, families, {**of_topic}, topic, selection)


def _of_topic(
    cluster: str | None,
    families: tuple[Sequence[FamilyGauge[Any]], Sequence[FamilyGauge[Any]]],
    labels: Attributes,
    topic: TopicLag,
    selection: Selection,
) -> Iterator[_Point]:
    if not selection.takes_topic(topic.topic):
        return
    yield from _known(cluster, families[0], labels, topic)
    for partition in topic.partitions if selection.partitions else ():
        attributes: Attributes = {**labels, "partition": partition.partition}
        yield from _known(cluster, families[1], attributes, partition)


def _known(
    cluster: str | None,
    families: Sequence[FamilyGauge[Any]],
    attributes: Attributes,
    subject: object,
) -> Iterator[_Point]:
    for family in families:
        if (value := family.read(subject)) is not None:
            yield _Point(cluster, family, attributes, value)

"""An OTLP receiver: what a collector speaks, on a free port, decoded with OpenTelemetry's own
classes. It keeps what it was sent."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.post_receiver import PostReceiver


class Point(NamedTuple):
    """A data point with its attributes, its resource's too."""

    unit: str
    resource: dict[str, Any]
    attributes: dict[str, Any]
    value: float


class SpanReceived(NamedTuple):
    """A span with its attributes, and the name of the service that it is of. Ids are in hex."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    began_ns: int
    ended_ns: int
    attributes: dict[str, Any]


class TraceCollector(PostReceiver):
    """Takes traces."""

    content_type = "application/x-protobuf"

    def __init__(self, port: int = 0) -> None:
        super().__init__(port)
        self.requests: list[ExportTraceServiceRequest] = []
        self.endpoint = f"http://127.0.0.1:{self.port}/v1/traces"

    def answer(self, body: bytes) -> bytes | None:
        self.requests.append(ExportTraceServiceRequest.FromString(body))
        answer: bytes = ExportTraceServiceResponse().SerializeToString()
        return answer

    def spans(self) -> list[SpanReceived]:
        """All that has come, in order. A push that was cut off is repeated with the same ids."""
        received = [
            SpanReceived(
                _values(of_resource.resource.attributes)["service.name"],
                span.name,
                span.trace_id.hex(),
                span.span_id.hex(),
                span.parent_span_id.hex(),
                span.start_time_unix_nano,
                span.end_time_unix_nano,
                _values(span.attributes),
            )
            for request in self.requests
            for of_resource in request.resource_spans
            for scope in of_resource.scope_spans
            for span in scope.spans
        ]
        return list({(span.trace_id, span.span_id): span for span in received}.values())


class Collector(PostReceiver):
    """One that is not `answering` reads, and says nothing."""

    content_type = "application/x-protobuf"

    def __init__(self, port: int = 0, *, answering: bool = True) -> None:
        super().__init__(port)
        self.requests: list[ExportMetricsServiceRequest] = []
        self.asked = threading.Event()
        self.endpoint = f"http://127.0.0.1:{self.port}/v1/metrics"
        self._answering = answering

    def answer(self, body: bytes) -> bytes | None:
        self.asked.set()
        if not self._answering:
            self.ended.wait()
            return None
        self.requests.append(ExportMetricsServiceRequest.FromString(body))
        answer: bytes = ExportMetricsServiceResponse().SerializeToString()
        return answer

    def points(self, *, since: int = 0) -> dict[str, list[Point]]:
        """All that has come, but for so many requests, by the metric's name."""
        found: dict[str, list[Point]] = {}
        for request in self.requests[since:]:
            for of_resource in request.resource_metrics:
                resource = _values(of_resource.resource.attributes)
                for scope in of_resource.scope_metrics:
                    for metric in scope.metrics:
                        for point in metric.gauge.data_points:
                            number = getattr(point, point.WhichOneof("value") or "as_double")
                            found.setdefault(metric.name, []).append(
                                Point(metric.unit, resource, _values(point.attributes), number)
                            )
        return found


def _values(attributes: Any) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value") or "string_value")
        for each in attributes
    }

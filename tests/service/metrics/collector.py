"""OpenTelemetry collectors that keep what they receive, in OpenTelemetry's own classes."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from werkzeug import Request, Response

from tests.http_server import HttpServer

_Export = TypeVar("_Export", ExportMetricsServiceRequest, ExportTraceServiceRequest)


class Point(NamedTuple):
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


class _Receiver(HttpServer, Generic[_Export]):
    def __init__(self, signal: str, export: type[_Export], port: int) -> None:
        super().__init__(self._receive, port)
        self.requests: list[_Export] = []
        self._path = f"/v1/{signal}"
        self._export: Any = export

    @property
    def endpoint(self) -> str:
        return self.url_for(self._path)

    def _receive(self, request: Request) -> Response:
        self.requests.append(self._export.FromString(request.data))
        # A message without fields: all was accepted.
        return Response(b"", content_type="application/x-protobuf")


class TraceCollector(_Receiver[ExportTraceServiceRequest]):
    def __init__(self, port: int = 0) -> None:
        super().__init__("traces", ExportTraceServiceRequest, port)

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


class Collector(_Receiver[ExportMetricsServiceRequest]):
    def __init__(self, port: int = 0) -> None:
        super().__init__("metrics", ExportMetricsServiceRequest, port)

    def points(self, *, since: int = 0) -> dict[str, list[Point]]:
        """All that has come, but for so many requests, by the metric's name."""
        result: dict[str, list[Point]] = {}
        for request in self.requests[since:]:
            for of_resource in request.resource_metrics:
                resource = _values(of_resource.resource.attributes)
                for scope in of_resource.scope_metrics:
                    for metric in scope.metrics:
                        for point in metric.gauge.data_points:
                            number = getattr(point, point.WhichOneof("value") or "as_double")
                            result.setdefault(metric.name, []).append(
                                Point(metric.unit, resource, _values(point.attributes), number)
                            )
        return result


def _values(attributes: Any) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value") or "string_value")
        for each in attributes
    }

"""An OTLP receiver: what a collector speaks, on a free port, decoded with OpenTelemetry's own
classes. It keeps what it was sent."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)


class Point(NamedTuple):
    """A data point with its attributes, its resource's too."""

    unit: str
    resource: dict[str, Any]
    attributes: dict[str, Any]
    value: float


class Collector:
    """A context manager. `port` 0 takes a free one. One that is not `answering` reads, and says
    nothing."""

    def __init__(self, port: int = 0, *, answering: bool = True) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        self.asked = threading.Event()
        self._ended = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.asked.set()
                if not answering:
                    collector._ended.wait()
                    return
                collector.requests.append(ExportMetricsServiceRequest.FromString(body))
                answer = ExportMetricsServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.port = self._server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}/v1/metrics"

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

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

"""An HTTP server in this process, on a thread of its own; gone on exit."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

_Server = TypeVar("_Server", bound="HttpServer")


class QuietHandler(BaseHTTPRequestHandler):
    """Logs nothing."""

    def body(self) -> bytes:
        """What was sent with the request."""
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def answer(self, status: int, content_type: str, body: bytes) -> None:
        """Once for each request."""
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


class HttpServer:
    """A context manager. `port` 0 takes a free one; with `tls` it is https."""

    def __init__(
        self, handler: type[QuietHandler], port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.port = self._server.server_address[1]
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"

    def __enter__(self: _Server) -> _Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

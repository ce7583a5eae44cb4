"""pytest-httpserver where one function answers every request; gone on exit."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from typing import Any

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

JSON = "application/json"


class HttpServer(HTTPServer):
    """`port` 0 takes a free one, `tls` is https, `log` has requests. Raises `respond`'s errors."""

    def __init__(
        self,
        respond: Callable[[Request], Response],
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__("127.0.0.1", port, tls, threaded=True)
        self.expect_request(re.compile("")).respond_with_handler(respond)

    @property
    def url(self) -> str:
        return self.url_for("").rstrip("/")

    def thread_target(self) -> None:
        assert self.server is not None
        # Else its end takes half a second.
        self.server.serve_forever(poll_interval=0.02)

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        if raised[0] is None:
            self.check()


def raw_path(request: Request) -> str:
    """Path and query as they were sent, with their escapes."""
    return str(request.environ["REQUEST_URI"])

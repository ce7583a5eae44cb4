"""A server that takes what programs post to it over HTTP; gone on exit."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

Receiver = TypeVar("Receiver", bound="PostReceiver")


class PostReceiver:
    """A context manager. `port` 0 takes a free one."""

    content_type = "text/plain"

    def __init__(self, port: int = 0) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                answer = receiver.answer(self.rfile.read(int(self.headers["content-length"])))
                if answer is None:
                    return
                self.send_response(200)
                self.send_header("content-type", receiver.content_type)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self.ended = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.port = self._server.server_address[1]

    def answer(self, body: bytes) -> bytes | None:
        """To what was posted; None to say nothing. On a thread of its own."""
        raise NotImplementedError

    def __enter__(self: Receiver) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

"""A server that takes what programs post to it over HTTP; gone on exit."""

from __future__ import annotations

import threading

from tests.http_server import HttpServer, QuietHandler


class PostReceiver(HttpServer):
    """A context manager. `port` 0 takes a free one."""

    content_type = "text/plain"

    def __init__(self, port: int = 0) -> None:
        receiver = self

        class Handler(QuietHandler):
            def do_POST(self) -> None:  # noqa: N802  # the name that http.server calls
                answer = receiver.answer(self.body())
                if answer is not None:
                    self.answer(200, receiver.content_type, answer)

        self.ended = threading.Event()
        super().__init__(Handler, port)

    def answer(self, body: bytes) -> bytes | None:
        """To what was posted; None to say nothing. On a thread of its own."""
        raise NotImplementedError

    def __exit__(self, *exits: object) -> None:
        self.ended.set()
        super().__exit__(*exits)

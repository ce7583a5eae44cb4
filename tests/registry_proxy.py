"""What stands before a schema registry where rights are kept: Apicurio itself has users only with
an identity server. It hands on what it lets through, and remembers what it was asked."""

from __future__ import annotations

import base64
import ssl
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

USER: Final = "reader"
PASSWORD: Final = "s3cret: of tests"
_CREDENTIALS: Final = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


class RegistryProxy:
    """A context manager. Where it is guarded, nobody but USER is let in, who may only read. With
    `tls` it is https."""

    def __init__(
        self, registry_url: str, *, guarded: bool = False, tls: ssl.SSLContext | None = None
    ) -> None:
        self.requests: list[tuple[str, str]] = []
        """Method and path of each."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def _handle(self) -> None:
                proxy.requests.append((self.command, self.path))
                length = int(self.headers.get("content-length", 0))
                body = self.rfile.read(length) if length else None
                if guarded and self.headers.get("authorization") != _CREDENTIALS:
                    self._answer(401, b'{"error_code": 40101, "message": "who are you"}')
                elif guarded and self._changes():
                    self._answer(403, b'{"error_code": 40301, "message": "you may only read"}')
                else:
                    self._answer(*proxy._ask(registry_url + self.path, self.command, body))

            do_GET = do_POST = do_PUT = _handle  # noqa: N815  # the names that http.server calls

            def _changes(self) -> bool:
                # To look a schema up is a POST too.
                return self.command == "PUT" or self.path.endswith("/versions")

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", "application/vnd.schemaregistry.v1+json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> RegistryProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _ask(self, url: str, method: str, body: bytes | None) -> tuple[int, bytes]:
        request = urllib.request.Request(
            url,
            data=body,
            method=method,
            headers={"content-type": "application/vnd.schemaregistry.v1+json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read()

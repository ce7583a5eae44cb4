"""What stands before a schema registry where rights are kept: Apicurio itself has users only with
an identity server. It hands on what it lets through, and remembers what it was asked."""

from __future__ import annotations

import base64
import ssl
import urllib.error
import urllib.request
from typing import Final

from tests.http_server import HttpServer, QuietHandler

USER: Final = "reader"
PASSWORD: Final = "s3cret: of tests"
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_CREDENTIALS: Final = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


class RegistryProxy(HttpServer):
    """A context manager. Where it is guarded, nobody but USER is let in, who may only read. With
    `tls` it is https."""

    def __init__(
        self, registry_url: str, *, guarded: bool = False, tls: ssl.SSLContext | None = None
    ) -> None:
        self.requests: list[tuple[str, str]] = []
        """Method and path of each."""
        proxy = self

        class Handler(QuietHandler):
            def _handle(self) -> None:
                proxy.requests.append((self.command, self.path))
                body = self.body()
                if guarded and self.headers.get("authorization") != _CREDENTIALS:
                    self._answer(401, b'{"error_code": 40101, "message": "who are you"}')
                elif guarded and self._changes():
                    self._answer(403, b'{"error_code": 40301, "message": "you may only read"}')
                else:
                    self._answer(*proxy._ask(registry_url + self.path, self.command, body or None))

            do_GET = do_POST = do_PUT = _handle  # noqa: N815  # the names that http.server calls

            def _changes(self) -> bool:
                # To look a schema up is a POST too.
                return self.command == "PUT" or self.path.endswith("/versions")

            def _answer(self, status: int, body: bytes) -> None:
                self.answer(status, _CONTENT_TYPE, body)

        super().__init__(Handler, tls=tls)

    def _ask(self, url: str, method: str, body: bytes | None) -> tuple[int, bytes]:
        request = urllib.request.Request(
            url, data=body, method=method, headers={"content-type": _CONTENT_TYPE}
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read()

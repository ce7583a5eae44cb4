"""Rules for every request and response: its host, its size, its headers, its unsent bytes."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparklag_schemas.settings import LimitSettings
from sparklag_schemas.text.printable import printable
from sparklag_service.counters import Counters
from sparklag_service.live.reader import WIRE_STATE, Wire
from sparklag_service.rest.problems import (
    Problem,
    invalid_parameter,
    path_by_segments,
    problem_response,
)

_log = logging.getLogger(__name__)
_SLICE_BYTES: Final = 64 * 1024
_MB: Final = 1024 * 1024


class UnsentResponses:
    """The unsent responses of all connections of a server."""

    def __init__(self, limits: LimitSettings, counters: Counters) -> None:
        self._limits = limits
        self._counters = counters
        self._deadlines: dict[Wire, asyncio.TimerHandle] = {}
        """Deadlines of clients that receive slower than the server writes, the slowest client
        first. A cut-off connection counts until its text is freed."""

    def begin_wait(self, wire: Wire) -> None:
        """Start the deadline of a wire with a large response, or with a full kernel buffer."""
        if wire not in self._deadlines:
            loop = asyncio.get_running_loop()
            self._deadlines[wire] = loop.call_later(self._limits.response_s, self.cut_off, wire)
        self.make_room()

    def end_wait(self, wire: Wire) -> None:
        """Stop the deadline, unless more of the text is unsent: a text has one deadline."""
        if wire in self._deadlines and not wire.text and wire.is_clear:
            self._deadlines.pop(wire).cancel()

    def is_full(self) -> bool:
        """Returns whether too much is unsent. Cut-off connections count until the loop frees
        them."""
        return self._is_too_much(self._deadlines)

    def make_room(self) -> None:
        """Cut off the slowest client of the address with the most slow clients, until the limit
        holds: one hostile client must not harm others."""
        while self._is_too_much(open_wires := [w for w in self._deadlines if not w.is_cut]):
            of_address = Counter(wire.address for wire in open_wires)
            self.cut_off(max(open_wires, key=lambda wire: of_address[wire.address]))

    def _is_too_much(self, wires: Collection[Wire]) -> bool:
        texts = {id(wire.text): len(wire.text) for wire in wires}
        sizes = [*texts.values(), *(wire.unsent_bytes for wire in wires)]
        return sum(sizes) - max(sizes, default=0) > self._limits.unsent_mb * _MB

    def cut_off(self, wire: Wire) -> None:
        """Count a connection, and end it at once."""
        self._counters.connections_cut_off += not wire.is_cut
        wire.cut()


class SlicedResponses:
    """An ASGI application in front of `app`. It writes the next slice of a response when the client
    has received the last one, and ends the response after all slices."""

    def __init__(self, app: ASGIApp, unsent: UnsentResponses) -> None:
        self._app = app
        self._unsent = unsent
        self._admission = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wire: Wire = scope["state"][WIRE_STATE]

        async def send_slices(message: Message) -> None:
            text = message.get("body", b"")
            if len(text) <= _SLICE_BYTES:
                await send(message)
                return
            wire.text = text
            self._unsent.begin_wait(wire)
            try:
                for start in range(0, len(text), _SLICE_BYTES):
                    if start:
                        # The loop can detect a disconnect, and other tasks run.
                        await asyncio.sleep(0)
                    part = text[start : start + _SLICE_BYTES]
                    await send({**message, "body": part, "more_body": True})
                if not message.get("more_body", False):
                    await send({**message, "body": b""})
            finally:
                wire.text = b""
                self._unsent.end_wait(wire)

        if self._unsent.is_full():
            # One at a time: each request may add a large text.
            async with self._admission:
                while self._unsent.is_full():
                    self._unsent.make_room()
                    await asyncio.sleep(0)
        await self._app(scope, receive, send_slices)


_MAX_BODY_BYTES: Final = 64 * 1024
_NOT_PUBLIC: Final = (".localhost", ".local", ".internal", ".svc", ".home.arpa")
"""Private suffixes: nobody can register such a name with this address."""
_POLICY: Final = (
    b"content-security-policy",
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    b" base-uri 'self'; form-action 'none'; frame-ancestors 'none';"
    b" require-trusted-types-for 'script'",
)
_DOCS_POLICY: Final = (
    b"content-security-policy",
    b"default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline';"
    b" img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none';"
    b" frame-ancestors 'none'",
)
_NO_STORE: Final = (b"cache-control", b"no-store")
"""A proxy's cache would give one principal's response to another."""
_HEADERS: Final = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


_THIS_MACHINE: Final = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
"""Addresses of this machine. Not all of 127/8: a mesh proxy sends foreign requests from
127.0.0.6."""
_OF_CLIENTS: Final = frozenset(
    """
    accept accept-encoding accept-language cache-control connection content-length cookie dnt
    host if-modified-since if-none-match last-event-id origin pragma priority referer sec-ch-ua
    sec-ch-ua-mobile sec-ch-ua-platform sec-fetch-dest sec-fetch-mode sec-fetch-site
    sec-fetch-user sec-gpc upgrade-insecure-requests user-agent
    """.split()  # noqa: SIM905
)
"""Headers of the command line, curl and browsers. Each proxy adds other headers."""


def is_local(request: Request) -> bool:
    """True if a client on this machine sent the request without a proxy: it has only headers of
    clients. The address of a connection that was reset is unknown."""
    if request.client is None or request.client.host not in _THIS_MACHINE:
        return False
    # nginx adds no header, but uses HTTP/1.0 to its upstream.
    is_client = request.scope["http_version"] == "1.1"
    return is_client and _OF_CLIENTS.issuperset(request.headers.keys())


class RequestRules:
    """An ASGI application in front of `app`. HEAD becomes GET without the body."""

    def __init__(
        self,
        app: ASGIApp,
        http_host: str,
        http_hosts: Iterable[str],
        monitoring_port: int | None = None,
        is_logged: bool = False,
    ) -> None:
        """`http_hosts`: names of the service, or patterns for them. `monitoring_port`: has
        `/health` and `/metrics` alone. `is_logged`: log a line for each request."""
        self._is_logged = is_logged
        self._app = app
        self._monitoring_port = monitoring_port
        self._hosts = [host.lower() for host in (http_host, *http_hosts)]
        self._is_ours = lru_cache(16)(self._names_this)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        problem = self._problem(scope)
        app = self._app if problem is None else problem_response(problem)
        # The server clears the scope when the response is complete.
        method, path, client = scope["method"], scope["path"], scope.get("client") or ("?",)
        policy = _DOCS_POLICY if path.startswith("/docs") else _POLICY
        is_head, is_over = method == "HEAD", False
        status, began_s = 0, time.monotonic()

        async def send_by_rules(message: Message) -> None:
            nonlocal is_over, status
            if message["type"] == "http.response.start":
                status, headers = message["status"], [*message.get("headers", ()), *_HEADERS]
                names = [name for name, _ in headers]
                headers += [header for header in (policy, _NO_STORE) if header[0] not in names]
                await send({**message, "headers": headers})
                if is_head:
                    # Ends an endless stream too: the server then reports a disconnect.
                    is_over = True
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
            elif not is_over:
                await send(message)

        by_rules = {**scope, "method": "GET" if is_head else method}
        by_rules["path"] = path_by_segments(scope)
        try:
            await app(by_rules, receive, send_by_rules)
        finally:
            if self._is_logged:
                user, took_ms = by_rules.get("user"), (time.monotonic() - began_s) * 1000
                line = "%s %s: %d in %.0f ms, %s from %s"
                name = "nobody" if user is None else printable(user.name, 200)
                _log.info(line, method, printable(path, 200), status, took_ms, name, client[0])

    def _problem(self, scope: Scope) -> Problem | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if host and not self._is_ours(host):
            return Problem(
                "unknown-host",
                "the Host header does not name this service: http_hosts lists its names",
            )
        length = headers.get(b"content-length", b"0")
        if (
            b"transfer-encoding" in headers
            or not length.isdigit()
            or int(length[:20]) > _MAX_BODY_BYTES
        ):
            return Problem("body-too-large", "no route takes a body")
        if (
            (scope.get("server") or ("", None))[1] == self._monitoring_port is not None
            and not scope["path"].startswith("/health/")
            and scope["path"] != "/metrics"
        ):
            return Problem("not-found", "this port has /health and /metrics alone")
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            return invalid_parameter("no name has a NUL in it")
        return None

    def _names_this(self, host: str) -> bool:
        """Refuses foreign names that resolve to this address, so that foreign pages cannot read
        from it: a Host must be an address or a name of the service."""
        name = (host.partition("]")[0][1:] if host[0] == "[" else host.partition(":")[0]).lower()
        name = name.rstrip(".")
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return (
                "." not in name
                or name.endswith(_NOT_PUBLIC)
                or any(fnmatchcase(name, host) for host in self._hosts)
            )
        return True

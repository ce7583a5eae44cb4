"""A connection to a broker: to whichever address of its name responds, and with a SASL session that
is renewed before it ends."""

from __future__ import annotations

import asyncio
import random
import socket
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeVar

from aiokafka import client as client_module
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import READER_LIMIT, AIOKafkaConnection, AIOKafkaProtocol, CloseReason
from aiokafka.errors import BrokerResponseError, KafkaConnectionError
from aiokafka.protocol.admin import SaslAuthenticateRequest, SaslHandShakeRequest

from sparklag_kafka.errors import KAFKA_FAILURES

_T = TypeVar("_T")
_NEXT_BROKER_S: Final = 1.0
"""The delay before a request is also sent to the next broker."""
_NEXT_ADDRESS_S: Final = 0.25
"""The delay before the next address of a name is tried too: as in RFC 8305."""
_RENEW_AFTER: Final = (0.85, 0.9)
"""The share of a session's lifetime, as in Kafka's clients, which go to 0.95: requests may wait in
the broker behind a fetch of half a second."""
_VAGUE: Final = (OSError, ConnectionRefusedError, TimeoutError, asyncio.TimeoutError)


async def first_result(
    attempts: Iterable[Callable[[], Coroutine[Any, Any, _T]]],
    delay_s: float = _NEXT_BROKER_S,
    final: tuple[type[BaseException], ...] = (),
) -> _T:
    """The first result; one more attempt begins after each `delay_s`, and whenever one fails.

    Raises one of KAFKA_FAILURES where every attempt does, or the first failure in `final`.
    """
    rest = iter(attempts)
    failures: list[BaseException] = []
    pending: set[asyncio.Task[_T]] = set()
    try:
        while True:
            attempt = next(rest, None)
            if attempt is not None:
                pending.add(asyncio.create_task(attempt()))
            if not pending:
                # Of the other addresses of a name, often nothing is known but that none listens.
                specific = [error for error in failures if type(error) not in _VAGUE]
                raise [KafkaConnectionError("no broker"), *failures, *specific][-1]
            done, pending = await asyncio.wait(
                pending,
                timeout=None if attempt is None else delay_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            errors = {task: task.exception() for task in done}
            for task, error in errors.items():
                if error is None:
                    return task.result()
                if isinstance(error, final) or not isinstance(error, KAFKA_FAILURES):
                    raise error
                failures.append(error)
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


async def open_connection(
    host: str, port: int, *, on_close: Callable[..., object] | None = None, **options: Any
) -> KafkaConnection:
    """Connect to the first address of `host` that responds; the name is resolved anew each time.
    `options`: those of aiokafka's `create_conn`. Raises one of KAFKA_FAILURES."""
    resolving = asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    resolved = await asyncio.wait_for(resolving, options["request_timeout_ms"] / 1000)
    addresses = dict.fromkeys(_numeric(address) for *_, address in resolved)
    connections = [KafkaConnection(host, port, address, **options) for address in addresses]
    winner: KafkaConnection | None = None
    try:
        # A login that one address refuses is not tried at the next: users may be locked out.
        attempts = [connection.connected_self for connection in connections]
        winner = await first_result(attempts, _NEXT_ADDRESS_S, final=(BrokerResponseError,))
        winner._on_close_cb = on_close
        return winner
    finally:
        for connection in connections:
            if connection is not winner:
                connection.close()


def _numeric(address: tuple[Any, ...]) -> str:
    host, _, *more = address
    zone = more[1] if more else 0
    return f"{host}%{zone}" if zone and "%" not in host else str(host)


class KafkaConnection(AIOKafkaConnection):  # type: ignore[misc]  # aiokafka has no types
    """Renews its SASL session (KIP-368) on the same connection: requests in flight finish, and
    later ones wait until the broker has accepted the login."""

    def __init__(self, host: str, port: int, address: str, **options: Any) -> None:
        super().__init__(host, port, **options)
        self._address = address
        self._renewal: asyncio.Task[None] | None = None
        self._renewal_timer: asyncio.TimerHandle | None = None

    async def connected_self(self) -> KafkaConnection:
        await self.connect()
        return self

    async def connect(self) -> None:
        """Like aiokafka's, to one address, with the certificate of the host."""
        loop = self._loop
        self._closed_fut = loop.create_future()
        reader = asyncio.StreamReader(limit=READER_LIMIT, loop=loop)
        protocol = AIOKafkaProtocol(self._closed_fut, reader, loop=loop)
        is_tls = self._security_protocol.endswith("SSL")
        connecting = loop.create_connection(
            lambda: protocol,
            self._address,
            self._port,
            ssl=self._ssl_context if is_tls else None,
            server_hostname=self._host.partition("%")[0] if is_tls else None,
        )
        transport, _ = await asyncio.wait_for(connecting, self._request_timeout)
        self._reader, self._protocol = reader, protocol
        self._writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        self._read_task = self._create_reader_task()
        if self._max_idle_ms is not None:
            self._idle_check(weakref.ref(self))
        try:
            await self._do_version_lookup()
            if self._security_protocol.startswith("SASL"):
                await self._do_sasl_handshake()
        except BaseException:
            self.close()
            raise

    def send(self, request: Any, expect_response: bool = True) -> Awaitable[Any]:
        """See aiokafka."""
        if isinstance(request, SaslAuthenticateRequest):
            return self._authenticate(request)
        if not isinstance(request, SaslHandShakeRequest):
            timer = self._renewal_timer
            if timer is not None and self._loop.time() >= timer.when():
                self._renew()  # The timer is late.
            if self._renewal is not None:
                return self._send_after(self._renewal, request, expect_response)
        sent: Awaitable[Any] = super().send(request, expect_response)
        return sent

    def close(self, reason: Any = None, exc: BaseException | None = None) -> Any:
        """See aiokafka."""
        self._stop_timer()
        return super().close(reason, exc)

    async def _authenticate(self, request: Any) -> Any:
        began_s = self._loop.time()
        response = await super().send(request)
        lifetime_s = getattr(response, "session_lifetime_ms", 0) / 1000
        if lifetime_s > 0 and self.connected():
            self._stop_timer()
            renew_at_s = began_s + lifetime_s * random.uniform(*_RENEW_AFTER)
            self._renewal_timer = self._loop.call_at(renew_at_s, self._renew)
        return response

    async def _send_after(
        self, renewal: asyncio.Task[None], request: Any, expect_response: bool
    ) -> Any:
        done, _ = await asyncio.wait({renewal}, timeout=self._request_timeout)
        if not done:
            raise asyncio.TimeoutError
        return await super().send(request, expect_response)

    def _renew(self) -> None:
        self._stop_timer()
        if self._renewal is None and self.connected():
            self._renewal = self._loop.create_task(self._log_in_again())

    async def _log_in_again(self) -> None:
        try:
            await self._do_sasl_handshake()
        except KAFKA_FAILURES as error:
            # The next request connects anew, and has the cause if that fails too.
            self.close(reason=CloseReason.CONNECTION_BROKEN, exc=error)
        finally:
            self._renewal = None

    def _stop_timer(self) -> None:
        if self._renewal_timer is not None:
            self._renewal_timer.cancel()
            self._renewal_timer = None


_own: ContextVar[bool] = ContextVar("_own", default=False)
"""True: the client that connects is sparklag's."""


def use_own_connections(client: AIOKafkaClient) -> None:
    """Make `client` connect by `open_connection`; other clients of the process do as before."""
    original = client_module.create_conn
    if not isinstance(original, partial):
        client_module.create_conn = partial(_create_conn, original)
    for name in ("bootstrap", "_get_conn"):
        setattr(client, name, partial(_with_own, getattr(client, name)))


async def _with_own(method: Callable[..., Awaitable[Any]], *values: Any, **options: Any) -> Any:
    token = _own.set(True)
    try:
        return await method(*values, **options)
    finally:
        _own.reset(token)


async def _create_conn(
    original: Callable[..., Awaitable[Any]], host: str, port: int, **options: Any
) -> Any:
    return await (open_connection if _own.get() else original)(host, port, **options)

"""A connection to a broker: to whichever address of its name responds, and with a SASL session that
is renewed before it ends."""

from __future__ import annotations

import asyncio
import random
import socket
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, TypeVar

from aiokafka import client as client_module
from aiokafka.conn import READER_LIMIT, AIOKafkaConnection, AIOKafkaProtocol, CloseReason
from aiokafka.errors import BrokerResponseError, IncompatibleBrokerVersion, SaslAuthenticationFailed
from aiokafka.protocol.admin import SaslAuthenticateRequest, SaslHandShakeRequest
from aiokafka.protocol.api import Request

from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_kafka.login import Login
from sparklag_kafka.protocol.requests import not_taken

_T = TypeVar("_T")
_NEXT_ADDRESS_S: Final = 0.25
"""The delay before the next address of a name is tried too: as in RFC 8305."""
_RENEW_AFTER: Final = (0.85, 0.9)
"""The share of a session's lifetime, as in Kafka's clients, which go to 0.95: requests may wait in
the broker behind a fetch of half a second."""


async def first_result(
    attempts: Iterable[Callable[[], Coroutine[Any, Any, _T]]],
    delay_s: float,
    final: tuple[type[BaseException], ...] = (),
) -> _T:
    """The first result; one more attempt begins after each `delay_s`, and whenever one fails.
    Raises the last of KAFKA_FAILURES where every attempt fails, or the first failure in `final`."""
    rest = iter(attempts)
    failure: BaseException = OSError("no broker")
    pending: set[asyncio.Task[_T]] = set()
    try:
        while True:
            attempt = next(rest, None)
            if attempt is not None:
                pending.add(asyncio.create_task(attempt()))
            if not pending:
                raise failure
            timeout_s = None if attempt is None else delay_s
            done, pending = await asyncio.wait(
                pending, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            for task, error in [(task, task.exception()) for task in done]:
                if error is None:
                    return task.result()
                if isinstance(error, final) or not isinstance(error, KAFKA_FAILURES):
                    raise error
                failure = error
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


async def open_connection(host: str, port: int, **options: Any) -> KafkaConnection:
    """Connect to the first address of `host` that responds; the name is resolved anew each time.
    `options`: those of aiokafka's `create_conn`. Raises one of KAFKA_FAILURES."""
    resolving = asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    resolved = await asyncio.wait_for(resolving, options["request_timeout_ms"] / 1000)
    numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    addresses = dict.fromkeys(socket.getnameinfo(address, numeric)[0] for *_, address in resolved)
    connections = [KafkaConnection(host, port, address, **options) for address in addresses]
    winner: KafkaConnection | None = None
    try:
        # A login that one address refuses is not tried at the next: users may be locked out.
        attempts = [connection.connect for connection in connections]
        winner = await first_result(attempts, _NEXT_ADDRESS_S, final=(BrokerResponseError,))
        return winner
    finally:
        for connection in connections:
            if connection is not winner:
                connection.close()


class KafkaConnection(AIOKafkaConnection):  # type: ignore[misc]  # aiokafka has no types
    """Renews its SASL session (KIP-368) on the same connection: requests in flight finish, and
    later ones wait until the broker has accepted the login."""

    def __init__(self, host: str, port: int, address: str, **options: Any) -> None:
        super().__init__(host, port, **options)
        self._address = address
        self._login: Login = options["sasl_oauth_token_provider"]
        self._renewal: asyncio.Task[None] | None = None

    async def connect(self) -> KafkaConnection:
        """Like aiokafka's, to one address, with the certificate of the host. Returns itself."""
        loop = self._loop
        self._closed_fut = loop.create_future()
        reader = asyncio.StreamReader(limit=READER_LIMIT, loop=loop)
        protocol = AIOKafkaProtocol(self._closed_fut, reader, loop=loop)
        is_tls = self._security_protocol.endswith("SSL")
        connecting = loop.create_connection(
            lambda: protocol,
            self._address,
            self._port,
            ssl=self._login.ssl_context() if is_tls else None,
            server_hostname=self._host.partition("%")[0] if is_tls else None,
        )
        transport, _ = await asyncio.wait_for(connecting, self._request_timeout)
        self._reader, self._protocol = reader, protocol
        self._writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        self._read_task = self._create_reader_task()
        if self._max_idle_ms is not None:
            self._idle_check(weakref.ref(self))
        await self._do_version_lookup()
        if self._security_protocol.startswith("SASL"):
            await self._do_sasl_handshake()
        return self

    def send(self, request: Any, expect_response: bool = True) -> Awaitable[Any]:
        """See aiokafka. Raises RequestNotTaken too."""
        if isinstance(request, SaslAuthenticateRequest):
            return self._authenticate(request)
        if self._renewal is not None and not isinstance(request, SaslHandShakeRequest):
            return self._send_after(self._renewal, request, expect_response)
        try:
            return super().send(request, expect_response)  # type: ignore[no-any-return]  # it has no types
        except (IncompatibleBrokerVersion, NotImplementedError) as error:
            if isinstance(request, Request):  # aiokafka's text names neither request nor versions
                raise not_taken(request.API_KEY) from error
            raise

    async def _do_sasl_handshake(self) -> None:
        if self._sasl_mechanism != "OAUTHBEARER":
            self._sasl_plain_password = self._login.password()
        try:
            await super()._do_sasl_handshake()
        except SaslAuthenticationFailed:
            self._login.forget_token()
            raise

    async def _authenticate(self, request: Any) -> Any:
        began_s = self._loop.time()
        response = await super().send(request)
        if self._sasl_mechanism == "OAUTHBEARER" and response.sasl_auth_bytes:
            # A refusal, which the broker completes after this message (RFC 7628).
            response = await super().send(SaslAuthenticateRequest(b"\x01"))
        lifetime_s = getattr(response, "session_lifetime_ms", 0) / 1000
        if lifetime_s > 0:
            renew_at_s = began_s + lifetime_s * random.uniform(*_RENEW_AFTER)
            self._loop.call_at(renew_at_s, _renew, weakref.ref(self))
        return response

    async def _send_after(
        self, renewal: asyncio.Task[None], request: Any, expect_response: bool
    ) -> Any:
        await asyncio.wait({renewal})
        return await self.send(request, expect_response)

    async def log_in_again(self) -> None:
        try:
            await self._do_sasl_handshake()
        except (*KAFKA_FAILURES, ValueError, LookupError) as error:  # or a malformed answer
            # The next request connects anew, and has the cause if that fails too.
            self.close(reason=CloseReason.CONNECTION_BROKEN, exc=error)
        finally:
            self._renewal = None


def _renew(reference: weakref.ref[KafkaConnection]) -> None:
    connection = reference()
    if connection is not None and connection.connected():
        connection._renewal = asyncio.create_task(connection.log_in_again())


async def _create_conn(
    original: Callable[..., Awaitable[Any]], host: str, port: int, **options: Any
) -> Any:
    # Other clients of the process connect as before.
    is_own = isinstance(options["sasl_oauth_token_provider"], Login)
    return await (open_connection if is_own else original)(host, port, **options)


client_module.create_conn = partial(_create_conn, client_module.create_conn)

"""The pool of connections to the brokers of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final

from aiokafka.conn import CloseReason
from aiokafka.errors import KafkaConnectionError

from sparklag_kafka.access import TrustedBrokers, connection_options, connection_problem
from sparklag_kafka.connection import first_result, open_connection
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_kafka.protocol.encoding import Versions
from sparklag_kafka.protocol.metadata import Address, MetadataRequest, TopicMetadata
from sparklag_schemas import ClusterAccess
from sparklag_schemas.settings.addresses import joined

_CLOSE_TIMEOUT_S: Final = 1.0
_MAX_IDLE_MS: Final = 540_000
"""The value of aiokafka's client: a broker closes the connection after 10 minutes."""


class BrokerConnection:
    """A connection to one broker. `timeout_s` bounds each response and each step of connecting.

    aiokafka's client is not used: it connects to one broker at a time, so a broker that hangs
    blocks the others, and it reads the metadata of the whole cluster whenever a connection breaks.
    """

    def __init__(
        self, address: Address, options: dict[str, Any], trusted: TrustedBrokers, timeout_s: float
    ) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self._trusted = trusted
        self._options = {
            **options,
            "request_timeout_ms": max(1, int(timeout_s * 1000)),
            "max_idle_ms": _MAX_IDLE_MS,
        }
        self._connection: Any = None
        self._connecting = asyncio.Lock()
        self._closed = False

    async def connect(self) -> Any:
        """The open aiokafka connection. Raises one of KAFKA_FAILURES."""
        async with self._connecting:
            if self._connection is None or not self._connection.connected():
                self._connection = None
                self._require_open()
                self._trusted.require(self.address[0])
                connection = await open_connection(*self.address, **self._options)
                if self._closed:
                    connection.close(reason=CloseReason.SHUTDOWN)
                self._require_open()
                self._connection = connection
            return self._connection

    async def send(self, request: Any) -> Any:
        """The response to one request. Raises one of KAFKA_FAILURES."""
        connection = await self.connect()
        try:
            return await connection.send(request)
        except asyncio.TimeoutError:
            self.drop(connection)
            raise

    async def api_versions(self) -> Versions:
        """The versions that the broker supports. Raises one of KAFKA_FAILURES."""
        versions: Versions = (await self.connect())._versions
        return versions

    def drop(self, connection: Any) -> None:
        """Give up a connection that does not respond: the next request opens a new one."""
        connection.close(reason=CloseReason.CONNECTION_TIMEOUT)

    async def aclose(self) -> None:
        """Close the connection for good; bounded in time."""
        self._closed = True
        if self._connection is not None:
            closed = self._connection.close(reason=CloseReason.SHUTDOWN)
            self._connection = None
            # TLS waits for the other side's close.
            await asyncio.wait([closed], timeout=_CLOSE_TIMEOUT_S)

    def _require_open(self) -> None:
        if self._closed:
            raise KafkaConnectionError(f"the connection to {joined([self.address])} was closed")


_HEDGE_S: Final = 1.0
"""The delay before a request is also sent to the next broker."""


class BrokerPool(AbstractAsyncContextManager["BrokerPool"]):
    """One shared connection to each broker. `refresh` updates the brokers from the metadata.

    Create it on its loop. Raises SettingsError as `client_options` does.
    """

    def __init__(self, access: ClusterAccess, timeout_s: float | None = None) -> None:
        """`timeout_s` bounds each response; None: `kafka.request_timeout_s`."""
        self.timeout_s = access.kafka.request_timeout_s if timeout_s is None else timeout_s
        self.brokers: dict[int, Address] = {}
        """Addresses by node id, from the newest metadata."""
        self._access = access
        self._options = connection_options(access)
        self._trusted = TrustedBrokers(access)
        self._seeds = access.addresses
        self._connections: dict[Address, BrokerConnection] = {}
        self.last_responder: Address | None = None

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def connection(self, node_id: int) -> BrokerConnection | None:
        """The shared connection to a broker. None: it is not in the metadata."""
        address = self.brokers.get(node_id)
        return None if address is None else self._shared(address)

    def connections(self, *, from_another: bool = False) -> list[BrokerConnection]:
        """Shared connections to every broker that may respond, the last responder first, or last
        with `from_another`."""
        last = [self.last_responder] if self.last_responder else []
        addresses = dict.fromkeys((*last, *self.brokers.values(), *self._seeds))
        if last and from_another:
            addresses[last[0]] = addresses.pop(last[0])
        return [self._shared(address) for address in addresses]

    def dedicated(self, address: Address) -> BrokerConnection:
        """A new connection, which the caller closes: a broker answers the requests of a connection
        in order, so a slow request delays those behind it."""
        return BrokerConnection(address, self._options, self._trusted, self.timeout_s)

    async def refresh(
        self, topics: Sequence[str] | None = (), *, from_another: bool = False
    ) -> Iterator[TopicMetadata] | None:
        """Update the brokers from the metadata, and return that of `topics` (None: all); creates no
        topic. None: no broker responds. Raises ResponseUnreadable, also during the iteration.
        `from_another`: request it from another broker than the last, if there is one."""
        response = await self.first_response(MetadataRequest(topics), from_another=from_another)
        if response is None:
            return None
        brokers, described = response.read()
        # A broker that has just started may return no brokers.
        self.brokers = brokers or self.brokers
        wanted = {*self.brokers.values(), *self._seeds}
        if self.last_responder not in wanted:
            self.last_responder = None
        left = [self._connections.pop(a) for a in list(self._connections) if a not in wanted]
        await asyncio.gather(*(connection.aclose() for connection in left))
        topics_described: Iterator[TopicMetadata] = described
        return topics_described

    async def first_response(self, request: Any, *, from_another: bool = False) -> Any:
        """The first response; the request goes to one more broker each second. None: no broker
        responds."""
        connections = self.connections(from_another=from_another)
        try:
            self.last_responder, response = await first_result(
                (partial(_response_of, connection, request) for connection in connections), _HEDGE_S
            )
        except KAFKA_FAILURES:
            return None
        return response

    async def explain_unreachable(self) -> str:
        """A sentence that no broker responds, with the cause if a new connection shows it."""
        cause = await connection_problem(self._access)
        return f"no broker answers: {cause}" if cause else "no broker answers"

    async def aclose(self) -> None:
        """Close the shared connections; bounded in time."""
        await asyncio.gather(*(connection.aclose() for connection in self._connections.values()))

    def _shared(self, address: Address) -> BrokerConnection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = self.dedicated(address)
        return connection


async def _response_of(connection: BrokerConnection, request: Any) -> tuple[Address, Any]:
    return connection.address, await connection.send(request)

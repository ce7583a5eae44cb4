"""A connection to one broker, opened on first use, and reopened after it broke."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiokafka.conn import CloseReason, create_conn
from aiokafka.errors import KafkaConnectionError

from sparklag_kafka.clients.client_options import TrustedBrokers
from sparklag_kafka.protocol.encoding import Versions
from sparklag_kafka.protocol.metadata import Address

_CLOSE_TIMEOUT_S: Final = 1.0
_MAX_IDLE_MS: Final = 540_000
"""As in aiokafka's client: below the 10 minutes after which a broker closes the connection."""


class BrokerConnection:
    """`timeout_s` bounds each response, and each step of connecting. `BrokerPool` creates them.

    Not aiokafka's client: it connects to one broker at a time, so that a broker which hangs blocks
    the others, and it reads the whole cluster's metadata whenever a connection breaks.
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
                connection = await create_conn(*self.address, **self._options)
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
        """What the broker supports. Raises one of KAFKA_FAILURES."""
        versions: Versions = (await self.connect())._versions
        return versions

    def drop(self, connection: Any) -> None:
        """Give up a connection that does not respond: the next request opens a new one."""
        connection.close(reason=CloseReason.CONNECTION_TIMEOUT)

    async def aclose(self) -> None:
        """Close it for good; bounded in time."""
        self._closed = True
        if self._connection is not None:
            closed = self._connection.close(reason=CloseReason.SHUTDOWN)
            self._connection = None
            # TLS waits for the other side's close.
            await asyncio.wait([closed], timeout=_CLOSE_TIMEOUT_S)

    def _require_open(self) -> None:
        if self._closed:
            host, port = self.address
            raise KafkaConnectionError(f"the connection to {host}:{port} was closed")

"""A connection to one broker, made when it is needed, and anew after it broke."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiokafka.conn import CloseReason, create_conn
from aiokafka.errors import KafkaError

from sparklag_kafka.clients.connection import TrustedBrokers

_CLOSE_S: Final = 1.0
_MAX_IDLE_MS: Final = 540_000
"""As aiokafka's client has it: below the 10 minutes after which a broker hangs up."""

BROKER_FAILURES: Final = (KafkaError, OSError, asyncio.TimeoutError)


class BrokerConnection:
    """`timeout_s` bounds each answer, and each step of connecting.

    Not aiokafka's client: that connects to one broker at a time, so that one which hangs keeps the
    others away, and reads the whole cluster's metadata whenever a connection breaks.
    """

    def __init__(
        self,
        host: str,
        port: int,
        options: dict[str, Any],
        trusted: TrustedBrokers,
        timeout_s: float,
    ) -> None:
        self.address = (host, port)
        self._trusted = trusted
        self._options = {
            **options,
            "request_timeout_ms": max(1, int(timeout_s * 1000)),
            "max_idle_ms": _MAX_IDLE_MS,
        }
        self._connection: Any = None
        self._connecting = asyncio.Lock()

    async def connection(self) -> Any:
        """Its aiokafka connection. Raises one of BROKER_FAILURES."""
        async with self._connecting:
            if self._connection is None or not self._connection.connected():
                self._connection = None
                self._trusted.require(self.address[0])
                self._connection = await create_conn(*self.address, **self._options)
            return self._connection

    async def ask(self, request: Any) -> Any:
        """The answer to one request. Raises one of BROKER_FAILURES."""
        connection = await self.connection()
        try:
            return await connection.send(request)
        except asyncio.TimeoutError:
            self.drop(connection)
            raise

    def drop(self, connection: Any) -> None:
        """It does not answer: the next request gets a new one."""
        connection.close(reason=CloseReason.CONNECTION_TIMEOUT)

    async def aclose(self) -> None:
        """Close the connection; bounded in time."""
        if self._connection is not None:
            closed = self._connection.close(reason=CloseReason.SHUTDOWN)
            self._connection = None
            # TLS waits for the other side to agree.
            await asyncio.wait([closed], timeout=_CLOSE_S)

"""Each address of a broker's name is tried, and the name is resolved for each connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient

from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.clients.consumer import ContractConsumer
from sparklag_kafka.connection import KafkaConnection, open_connection
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_schemas import ClusterAccess, KafkaSettings, Settings
from tests.local_kafka import LocalKafka
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.kafka
BROKER, HOLE = "127.0.0.1", "127.0.0.2"
Resolve = Callable[..., None]


@pytest.fixture
def resolve(kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolve]:
    """Sets the addresses of kafka.test. At HOLE, connections are accepted and nothing is sent."""
    addresses: list[str] = []
    getaddrinfo = socket.getaddrinfo

    def resolved(host: str, *values: Any, **options: Any) -> list[Any]:
        hosts = addresses if host == "kafka.test" else [host]
        return [info for each in hosts for info in getaddrinfo(each, *values, **options)]

    def to(*hosts: str) -> None:
        addresses[:] = hosts

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    with socket.create_server((HOLE, kafka.ports.client)):
        yield to


async def test_a_silent_address_delays_a_connection_less_than_its_timeout(
    kafka: LocalKafka, resolve: Resolve
) -> None:
    resolve(HOLE, BROKER)
    servers = f"kafka.test:{kafka.ports.client}"
    async with BrokerPool(ClusterAccess(servers), timeout_s=2 * DEADLINE_S) as pool:
        assert await asyncio.wait_for(pool.refresh(), DEADLINE_S) is not None


async def test_a_name_is_resolved_again_after_a_connection_failed(
    kafka: LocalKafka, resolve: Resolve
) -> None:
    options: dict[str, Any] = {"client_id": "sparklag", "request_timeout_ms": 500}
    resolve(HOLE)
    with pytest.raises(KAFKA_FAILURES):
        await open_connection("kafka.test", kafka.ports.client, **options)
    resolve(BROKER)
    options["request_timeout_ms"] = int(DEADLINE_S * 1000)
    connection = await open_connection("kafka.test", kafka.ports.client, **options)
    await connection.close()


async def test_only_sparklags_own_clients_have_these_connections(
    kafka: LocalKafka, resolve: Resolve, topic_name: str
) -> None:
    resolve(HOLE, BROKER)
    settings = Settings(kafka=KafkaSettings(request_timeout_s=2 * DEADLINE_S)).resolved(
        f"kafka.test:{kafka.ports.client}"
    )
    consumer = ContractConsumer(settings, lambda *_: None, group_id=topic_name)
    other = AIOKafkaClient(bootstrap_servers=kafka.bootstrap_servers)
    try:
        await asyncio.wait_for(consumer.start(), DEADLINE_S)
        await other.bootstrap()
        for client, is_own in ((consumer._client, True), (other, False)):
            await client.fetch_all_metadata()
            kinds = {isinstance(each, KafkaConnection) for each in client._conns.values()}
            assert kinds == {is_own}
    finally:
        await consumer.stop()
        await other.close()

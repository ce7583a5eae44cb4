"""Each address of a broker's name is tried, and the name is resolved for each connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient

from sparklag_kafka.access import connection_options
from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.clients.consumer import ContractConsumer
from sparklag_kafka.connection import KafkaConnection, open_connection
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_schemas import KafkaSettings, Settings
from sparklag_schemas.settings import ClusterAccess
from tests.local_kafka import LocalKafka
from tests.waiting import DEADLINE_S

BROKER, SILENT = "127.0.0.1", "127.0.0.2"


@pytest.fixture
def addresses(kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Those of kafka.test. SILENT takes connections, and sends nothing."""
    listed: list[str] = []
    getaddrinfo = socket.getaddrinfo

    def resolved(host: str, *values: Any, **options: Any) -> list[Any]:
        hosts = listed if host == "kafka.test" else [host]
        return [each for name in hosts for each in getaddrinfo(name, *values, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    with socket.create_server((SILENT, kafka.ports.client)):
        yield listed


@pytest.mark.kafka
async def test_a_silent_address_delays_sparklags_clients_less_than_its_timeout(
    kafka: LocalKafka, addresses: list[str], topic_name: str
) -> None:
    addresses[:] = [SILENT, BROKER]
    patient = KafkaSettings(request_timeout_s=2 * DEADLINE_S)
    settings = Settings(kafka=patient).resolved(f"kafka.test:{kafka.ports.client}")
    async with BrokerPool(settings.access) as pool:
        assert await asyncio.wait_for(pool.refresh(), DEADLINE_S) is not None
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


@pytest.mark.kafka
async def test_a_name_is_resolved_again_after_a_connection_failed(
    kafka: LocalKafka, addresses: list[str]
) -> None:
    options = connection_options(ClusterAccess("", KafkaSettings(request_timeout_s=0.5)))
    addresses[:] = [SILENT]
    with pytest.raises(KAFKA_FAILURES):
        await open_connection("kafka.test", kafka.ports.client, **options)
    addresses[:] = [BROKER]
    options["request_timeout_ms"] = int(DEADLINE_S * 1000)
    connection = await open_connection("kafka.test", kafka.ports.client, **options)
    await connection.close()

"""The pool of connections: whichever broker responds first, and what is closed stays closed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.errors import KAFKA_FAILURES, KafkaUnavailable, broker_error_text, error_text
from sparklag_kafka.protocol.metadata import MetadataRequest
from sparklag_schemas import ClusterAccess
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient


@pytest.fixture
def silent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_failure_is_explained_in_one_sentence() -> None:
    assert issubclass(KafkaUnavailable, KAFKA_FAILURES)
    assert (
        broker_error_text(3, asyncio.TimeoutError(), 2.5) == "broker 3 did not answer within 2.5 s"
    )
    assert broker_error_text(3, OSError("gone"), 2.5) == "broker 3: gone"
    assert error_text(ConnectionResetError()) == "ConnectionResetError"


async def test_no_broker_is_no_response() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"127.0.0.1:{server.getsockname()[1]}"
    async with BrokerPool(ClusterAccess(nobody)) as pool:
        assert await pool.refresh(["orders"]) is None
        assert pool.brokers == {}
        assert pool.connection(1) is None
        reason = await pool.explain_unreachable()
    assert reason.startswith(f"no broker answers: {nobody}: connection refused")


@pytest.mark.kafka
async def test_a_silent_broker_does_not_delay_the_others_for_long(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str, silent: str
) -> None:
    second_client.create(topic_name, 3)
    access = ClusterAccess(f"{silent},{kafka.bootstrap_servers}")
    async with BrokerPool(access, timeout_s=120.0) as pool:
        topics = await asyncio.wait_for(pool.refresh([topic_name]), 60.0)
        assert topics is not None
        (topic,) = topics
        assert topic.leaders == dict.fromkeys(range(3), 1)
        (node_id,) = pool.brokers
        host, port = pool.brokers[node_id]
        # The last responder gets the next request first.
        assert pool.connections()[0] is pool.connection(node_id)
        assert f"{host}:{port}" == kafka.bootstrap_servers


@pytest.mark.kafka
async def test_a_closed_connection_is_not_opened_again(kafka: LocalKafka) -> None:
    async with BrokerPool(ClusterAccess(kafka.bootstrap_servers), timeout_s=60.0) as pool:
        await pool.refresh()
        shared = pool.connections()[0]
        own = pool.dedicated(shared.address)
        assert own is not shared
        await own.send(MetadataRequest([]))
        await own.aclose()
        with pytest.raises(KAFKA_FAILURES, match="was closed"):
            await own.send(MetadataRequest([]))
        await shared.send(MetadataRequest([]))
    with pytest.raises(KAFKA_FAILURES, match="was closed"):
        await shared.send(MetadataRequest([]))

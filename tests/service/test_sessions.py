"""SASL sessions that the broker ends (KIP-368) are renewed before."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.protocol.metadata import MetadataRequest
from sparklag_listener.publishing import publish_offsets
from sparklag_listener.stats import Stats
from sparklag_schemas import Observation
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.timestamps import epoch_ms
from tests.background_task import background
from tests.issuer import KafkaIssuer
from tests.messages import QUERY_ID, observation, position
from tests.second_client import SecondClient
from tests.secured_kafka import ExpiringKafka, change_password, login
from tests.service.conftest import running, settings_for
from tests.waiting import DEADLINE_S, holds

LONG = pytest.param(3, 10.0, 600.0, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])


@pytest.mark.kafka
@pytest.mark.parametrize("with_tokens", [False, True])
@pytest.mark.parametrize(("instances", "session_s", "lasts_s"), [(1, 5.0, 30.0), LONG])
async def test_no_session_expires_while_driver_and_service_work(
    with_tokens: bool,
    instances: int,
    session_s: float,
    lasts_s: float,
    topic_name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue: NewestQueue[Observation] = NewestQueue(10, lambda one: one.query_id)
    stats, offset = Stats(), 0
    problems: list[Any] = []
    with KafkaIssuer(2 * session_s) as issuer, ExpiringKafka(session_s, issuer.url) as kafka:
        async with AsyncExitStack() as stack:
            internal = SecondClient(kafka.internal_servers)
            internal.create(topic_name, 1)
            kafka_settings = issuer.login() if with_tokens else login()
            settings = settings_for(kafka.bootstrap_servers, kafka=kafka_settings)
            services = [
                await stack.enter_async_context(running(settings, internal))
                for _ in range(instances)
            ]
            resolved = settings.resolved()
            await stack.enter_async_context(background(publish_offsets(queue, resolved, stats)))
            idle = (await stack.enter_async_context(BrokerPool(resolved.access))).connections()[0]
            connection = await idle.connect()
            for name in ("aiokafka", "aiokafka.client", "aiokafka.conn", "aiokafka.cluster"):
                caplog.set_level(logging.WARNING, name)
            caplog.clear()
            end_s = time.monotonic() + lasts_s
            while time.monotonic() < end_s:
                offset += 1
                internal.produce(topic_name, [b"x"])
                both = position({topic_name: {0: offset}})
                queue.put_nowait(observation(observed_at=epoch_ms(), sources=[both]))
                await asyncio.sleep(0.5)
                for service in services:
                    problems += [*service.state.not_ready().items(), *service.state.degraded()]
                    entry = service.pipeline.view.get(QUERY_ID)
                    topics = entry.event.topics if entry is not None else ()
                    problems += [p.reason for topic in topics for p in topic.partitions if p.reason]
            await idle.send(MetadataRequest([]))
            assert await idle.connect() is connection
            await asyncio.wait_for(queue.join(), 10 * session_s)
        # An earlier test of this process may have left lines of REST to be summed up.
        lines = [r.getMessage() for r in caplog.records if "rest" not in r.name]
        assert lines == problems == []
        assert (stats.published, stats.dropped, stats.last_error) == (offset, 0, None)
        assert kafka.expired_sessions() == 0
        assert issuer.issued >= lasts_s / session_s * with_tokens


@pytest.mark.kafka
async def test_a_password_that_changes_costs_no_event(tmp_path: Path) -> None:
    """The broker has the new one first, so that logins fail until the file has it."""
    queue: NewestQueue[Observation] = NewestQueue(10_000, lambda one: one.query_id)
    stats, sent, file = Stats(), 0, tmp_path / "password"
    file.write_text("right\n")
    refused = "wrong user name or password for 'sparklag' (SCRAM-SHA-256)"

    async def observe() -> None:
        nonlocal sent
        while True:
            queue.put_nowait(observation(observed_at=epoch_ms()))
            sent += 1
            await asyncio.sleep(0.02)

    with ExpiringKafka(2.0) as kafka:
        internal = SecondClient(kafka.internal_servers)
        by_file = replace(login(), sasl_password=None, sasl_password_file=str(file))
        settings = settings_for(kafka.bootstrap_servers, kafka=by_file)
        async with (
            running(settings, internal) as service,
            background(publish_offsets(queue, settings.resolved(), stats)),
        ):
            async with background(observe()):
                await holds(lambda: stats.published > 0, "it publishes")
                await asyncio.to_thread(change_password, kafka, "new")
                await holds(lambda: refused in str(stats.last_error), "the driver has the cause")
                await holds(lambda: refused in str(service.state.not_ready()), "the service too")
                file.write_text("new\n")
                outage = stats.published
                await holds(lambda: stats.published > outage + 100, "it publishes again")
                await service.is_ready()
            await asyncio.wait_for(queue.join(), DEADLINE_S)
        values = await asyncio.to_thread(internal.read_all, settings.offsets_topic)
    assert (len(values), stats.published, stats.dropped) == (sent, sent, 0)

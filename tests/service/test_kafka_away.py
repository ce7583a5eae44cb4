"""A Kafka that does not answer is named, whenever that begins, also by an instance that measures
nothing."""

from __future__ import annotations

import pytest

from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.service.conftest import RunningService, settings_for, starting
from tests.waiting import holds

pytestmark = pytest.mark.kafka


async def names(service: RunningService, part: str, reason: str) -> None:
    await holds(
        lambda: reason in service.state.not_ready().get(part, ""), f"{part} fails with: {reason}"
    )


async def test_a_kafka_that_is_silent_at_the_start_or_later_or_killed_is_named() -> None:
    with LocalKafka() as broker:
        broker.freeze()
        settings = settings_for(broker.bootstrap_servers, measure_timeout_s=1.0)
        async with starting(settings, SecondClient(broker.bootstrap_servers)) as service:
            assert "has not answered yet" in service.state.not_ready()["topics"]
            await names(service, "topics", "no answer within 5 s")
            broker.thaw()
            await service.is_ready()
            broker.freeze()
            await names(service, "intake", "cannot read the end of topic")
            await names(service, "intake", "no answer within 5 s")
            await names(service, "kafka", "no answer within 5 s")
            assert service.state.degraded() == {}
            broker.thaw()
            await service.is_ready()
            broker.kill()
            await names(service, "intake", "connection refused")
            await names(service, "kafka", "connection refused")
            broker.restart()
            await service.is_ready()

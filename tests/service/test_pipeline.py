"""The service on a real broker: from an observation to a lag event, and through what goes wrong."""

from __future__ import annotations

import logging
import time

import pytest
from msgspec.structs import replace

from sparklag_schemas import Settings
from sparklag_schemas.timestamps import epoch_ms
from tests.local_kafka import LocalKafka
from tests.logged import logged
from tests.messages import seen
from tests.second_client import SecondClient
from tests.service.conftest import RunningService, running, settings_for, starting
from tests.waiting import eventually, holds

pytestmark = pytest.mark.kafka


async def test_an_observation_becomes_a_lag_event_that_is_published_and_shown(
    service: RunningService, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name, 2)
    second_client.produce(topic_name, [b"x"] * 70, partition=0)
    observed_one = seen(topic_name, {0: 5, 1: 0})
    shown = await service.measures(observed_one, 65)
    published = service.published(observed_one.query_id)[0]
    assert published is not None
    assert published == shown
    assert published.cause == "progress"
    assert published.processed_at == observed_one.processed_at
    assert [p.lag for p in published.topics[0].partitions] == [65, 0]
    assert [p.earliest_offset for p in published.topics[0].partitions] == [0, 0]


async def test_an_unchanged_query_is_measured_less_often_where_its_name_matches(
    kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    """Until it completes a batch: then at once."""
    settings = settings_for(
        kafka.bootstrap_servers, heartbeat_s=600, refresh_intervals={"archive-.*": 600}
    )
    rare = seen(topic, {0: 0}, query="archive-orders")
    usual = seen(topic, {0: 0}, query="orders")
    async with running(settings, second_client) as service:
        service.observe(rare, usual)
        for each in (rare, usual):
            await service.shows(each.query_id, lambda e: e.total_lag == 0, "no lag")
        pipeline = service.pipeline

        async def at_rest() -> bool:
            state = pipeline.tracked[rare.query_id]
            return not pipeline.publishing.refresh_due(state, time.monotonic())

        await eventually(at_rest, "the query is as it was published")
        second_client.produce(topic, [b"x"] * 30)
        grown = await service.shows(usual.query_id, lambda e: e.total_lag == 30, "lag 30")
        assert (grown.cause, grown.observed_at) == ("refresh", usual.observed_at)
        assert service.shown(rare.query_id).total_lag == 0
        at_ms = epoch_ms()
        service.observe(replace(rare, observed_at=at_ms, batch_id=9))
        event = await service.shows(rare.query_id, lambda e: e.total_lag == 30, "lag 30")
        assert event.measured_at >= at_ms


async def test_other_messages_are_counted_logged_and_skipped(
    service_settings: Settings,
    second_client: SecondClient,
    topic: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    offsets_topic = service_settings.offsets_topic
    second_client.create(offsets_topic, 2, max_message_bytes=str(64 * 1024 * 1024))
    good = seen(topic, {0: 0})
    oversized = b" " * (17 * 1024 * 1024)
    with caplog.at_level(logging.WARNING):
        async with running(service_settings, second_client) as service:
            for junk in (b"\x00\xff", b"{}", b'{"schema_version": "9.0"}', oversized):
                second_client.produce(offsets_topic, [junk], partition=1)
            await service.measures(good, 0)
            await holds(
                lambda: service.pipeline.counters.refusals.counts.total() == 4,
                "four messages are counted",
            )

            async def committed() -> bool:
                result = second_client.committed(service_settings.group_id, offsets_topic)
                return result.get(1, 0) >= 4

            await eventually(committed, "the junk is committed, and not read again")
            counts = service.pipeline.counters.refusals.counts
    assert counts == {
        (offsets_topic, "malformed"): 2,
        (offsets_topic, "version"): 1,
        (offsets_topic, "bounds"): 1,
    }
    refused = [line for line in logged(caplog) if "refused a message" in line]
    places = [line.split(": ")[0] for line in refused]
    # Of each kind the first.
    assert places == [f"refused a message at {offsets_topic}[1]@{n}" for n in (0, 2, 3)]
    assert "upgrade sparklag here" in refused[1]
    assert "bytes, at most" in refused[2]


async def test_a_service_that_starts_again_answers_and_goes_on_where_it_was(
    service_settings: Settings, second_client: SecondClient, topic: str
) -> None:
    query = seen(topic, {0: 0})
    async with running(service_settings, second_client) as first:
        first.observe(query)
        await first.shows(query.query_id, lambda e: e.total_lag == 0, "no lag")
    second_client.produce(topic, [b"x"] * 7)
    async with running(service_settings, second_client) as second:
        assert second.pipeline.view.get(query.query_id) is not None
        event = await second.shows(query.query_id, lambda e: e.total_lag == 7, "lag 7")
        assert event.batch_id == query.batch_id
        assert second.pipeline.counters.observations == 0


async def test_topic_settings_that_lose_data_are_reported_at_start(
    kafka: LocalKafka, second_client: SecondClient, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_for(kafka.bootstrap_servers)
    second_client.create(settings.offsets_topic, 1, cleanup_policy="compact")
    second_client.create(settings.lag_topic, 1, retention_ms="1000")
    with caplog.at_level(logging.WARNING):
        async with running(settings, second_client):
            pass
    lines = " ".join(logged(caplog))
    assert f"topic {settings.offsets_topic}: cleanup.policy=compact" in lines
    assert f"topic {settings.lag_topic}: retention.ms=1000" in lines


async def test_a_query_too_wide_for_the_topic_is_counted_and_the_others_go_on(
    kafka: LocalKafka, second_client: SecondClient, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_for(kafka.bootstrap_servers)
    # Compressed, 4,000 partitions still take more than this.
    second_client.create(settings.lag_topic, 2, max_message_bytes="2000")
    wide = seen(topic, dict.fromkeys(range(4_000), 1))
    narrow = seen(topic, {0: 0})
    with caplog.at_level(logging.ERROR):
        async with running(settings, second_client) as service:
            service.observe(wide, narrow)
            await holds(
                lambda: service.pipeline.counters.too_large >= 2, "it is tried, and counted"
            )
            await service.shows(narrow.query_id, lambda e: e.total_lag == 0, "the narrow one")

            async def committed() -> bool:
                result = second_client.committed(settings.group_id, settings.offsets_topic)
                return sum(result.values()) == 2

            await eventually(committed, "it does not hold the commits up")
    lines = [line for line in logged(caplog) if "cannot be published" in line]
    assert len(lines) == 1
    assert f"more than topic {settings.lag_topic} takes" in lines[0]


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

"""Anybody who may write to sparklag's topics writes what nobody can know: on a real broker."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sparklag_schemas import Observation, Settings, encode
from sparklag_schemas.messages.headers import Signatures
from sparklag_schemas.messages.observation import ConsumerGroup
from sparklag_schemas.messages.topics import key_of
from sparklag_schemas.timestamps import epoch_ms
from tests.local_kafka import LocalKafka
from tests.messages import OTHER_RUN, RUN_ID, position, seen
from tests.second_client import SecondClient
from tests.service.conftest import RunningService, running, send, settings_for
from tests.waiting import holds

pytestmark = pytest.mark.kafka
LEAP = 10**15


@pytest.fixture
async def query(service: RunningService, second_client: SecondClient, topic: str) -> Observation:
    second_client.produce(topic, [b"x"] * 9)
    observed = seen(topic, {0: 1}, batch_id=1)
    await service.measures(observed, 8)
    return observed


def next_of(query: Observation, topic: str, offset: int, **fields: Any) -> Observation:
    there = [position({topic: {0: offset}})]
    return replace(query, observed_at=epoch_ms(), batch_id=offset, sources=there, **fields)


@pytest.mark.parametrize(
    "forged",
    [
        {"origin": "checkpoint", "cause": "checkpoint"},
        {"origin": "checkpoint", "cause": "checkpoint", "run_id": None},
        {"origin": "group", "run_id": None},
        {"origin": "listener", "run_id": None},
        {"origin": "listener", "group": ConsumerGroup(state="Stable")},
    ],
)
async def test_what_only_the_service_knows_is_taken_from_nobody(
    service: RunningService, query: Observation, topic: str, forged: dict[str, Any]
) -> None:
    service.observe(next_of(query, topic, 9, **forged))
    refused = service.pipeline.counters.refusals.counts
    await holds(lambda: refused[service.settings.offsets_topic, "place"] == 1, "it is refused")
    await service.measures(next_of(query, topic, 2), 7)


@pytest.mark.parametrize(
    "forged",
    [
        {"cause": "terminated"},
        {"cause": "terminated", "exception": "forged"},
        {"cause": "closed", "driver_end": "closed"},
        {"run_id": OTHER_RUN, "cause": "started"},
        {"run_id": OTHER_RUN, "batch_id": LEAP},
        {"batch_id": LEAP},
    ],
)
async def test_the_next_message_of_a_live_run_ends_what_a_message_from_the_future_reported(
    service: RunningService, query: Observation, topic: str, forged: dict[str, Any]
) -> None:
    ahead = replace(next_of(query, topic, 1), **{"observed_at": epoch_ms() + 299_000, **forged})
    service.observe(ahead)
    taken = service.pipeline.counters
    await holds(lambda: taken.observations == 2, "the forged one is taken in")
    event = await service.shows(query.query_id, lambda e: e.observed_at > query.observed_at, "it")
    assert event.observed_at < epoch_ms() + 2_000
    live = next_of(query, topic, 2)
    # As a heartbeat later.
    service.observe(replace(live, observed_at=event.observed_at + 1))
    event = await service.shows(query.query_id, lambda e: e.total_lag == 7, "its own position")
    # Another run may be another driver: that is told for a minute.
    status = "CONFLICT" if "run_id" in forged else "OK"
    assert (event.status, event.run_id, event.driver_end) == (status, RUN_ID, None)


async def test_an_event_from_the_future_does_not_outlive_the_next_of_its_query(
    service: RunningService, second_client: SecondClient, query: Observation, topic: str
) -> None:
    event = await service.shows(query.query_id, lambda e: e.total_lag == 8, "its lag")
    ahead_ms = epoch_ms() + 299_000
    forged = replace(
        event,
        observed_at=ahead_ms,
        measured_at=ahead_ms,
        status="FINISHED",
        observation_offset=LEAP,
    )
    send(second_client, service.settings.lag_topic, forged)
    event = await service.shows(query.query_id, lambda e: e.status == "FINISHED", "the forged one")
    service.observe(replace(next_of(query, topic, 2), observed_at=event.observed_at + 1))
    await service.shows(
        query.query_id, lambda e: (e.status, e.total_lag) == ("OK", 7), "its own again"
    )


def signed(settings: Settings) -> Settings:
    return replace(settings, signing_key="a key of at least 16 bytes")


async def test_signed_messages_that_are_repeated_move_and_end_nothing(
    service_settings: Settings, second_client: SecondClient, topic: str
) -> None:
    second_client.produce(topic, [b"x"] * 9)
    settings = signed(service_settings)
    signatures, now_ms = Signatures(settings), epoch_ms()
    query = seen(topic, {0: 0}, batch_id=0, observed_at=now_ms - 900_000)
    written: list[tuple[bytes, Any]] = []

    def write(*messages: Observation) -> None:
        for message in messages:
            key, value = key_of(message.query_id), encode(message)
            headers = signatures.headers(settings.offsets_topic, key, value)
            written.append((value, headers))
            second_client.produce(settings.offsets_topic, [value], key=key, headers=headers)

    async with running(settings, second_client) as service:
        counters = service.pipeline.counters
        for number in range(6):
            at_ms, run_id = query.observed_at + 120_000 * number, f"run {number}"
            sources = [position({topic: {0: number}})]
            write(
                replace(query, cause="started", run_id=run_id, observed_at=at_ms),
                replace(query, run_id=run_id, observed_at=at_ms + 90_000, sources=sources),
            )
        write(last := next_of(query, topic, 6, run_id="run 5"))
        await service.shows(query.query_id, lambda e: e.total_lag == 3, "its last position")
        past, taken = written[:-3], counters.observations
        for value, headers in past:
            second_client.produce(
                settings.offsets_topic, [value], key=key_of(query.query_id), headers=headers
            )
        await holds(lambda: counters.observations == taken + len(past), "they are read")
        assert counters.stale >= len(past)
        write(replace(next_of(last, topic, 7), cause="idle"))
        event = await service.shows(query.query_id, lambda e: e.total_lag == 2, "it moves on")
        assert (event.status, event.run_id) == ("OK", "run 5")


async def test_an_unsigned_byte_does_not_change_that_a_query_is_dead(
    kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    settings = signed(settings_for(kafka.bootstrap_servers, heartbeat_s=0.5))
    query = seen(topic, {0: 0})
    value, key = encode(query), key_of(query.query_id)
    headers = Signatures(settings).headers(settings.offsets_topic, key, value)
    async with running(settings, second_client) as service:
        second_client.produce(settings.offsets_topic, [value], key=key, headers=headers)
        await service.shows(query.query_id, lambda e: e.status == "STOP", "its driver is dead")
        second_client.produce(settings.offsets_topic, [b"x"], key=key)
        event = await service.shows(
            query.query_id, lambda e: "refused a message" in (e.reason or ""), "a word about it"
        )
        assert event.status == "STOP"
        statuses = {each.status for each in service.published(query.query_id) if each is not None}
        assert "UNKNOWN" not in statuses

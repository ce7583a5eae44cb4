"""Lag events of 50 partitions: to bytes, and onto `consumer-lag`.

Encoding, against msgspec and fastavro alone. Publishing, as the service does it (the events of 500
queries together, twenty times), from the event to the acknowledgement of all, against a bare
producer that gets keys, headers and bytes ready made: as aiokafka comes, and with our settings.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from statistics import median
from typing import Any, Final

import fastavro
import msgspec
from aiokafka import AIOKafkaProducer

from benchmarks.comparison import Row, Sampler, at_most, in_turn, say, times
from scripts.message_examples import example
from sparklag_jobs.demo.streams import create_topics
from sparklag_kafka.access import client_options
from sparklag_schemas import LagEvent, PartitionLag, RegistrySettings, Settings
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.avro.schema import schema_of
from sparklag_schemas.messages.headers import Headers, lag_event_headers
from sparklag_schemas.messages.topics import key_of, own_topics
from sparklag_schemas.settings import ClusterAccess
from sparklag_service.counters import Counters
from sparklag_service.intakes import delivery_queue
from sparklag_service.publishing.stage import Publishing
from sparklag_service.tracking.tracked_queries import TrackedQueries
from tests.local_kafka import LocalKafka
from tests.schema_registry import SchemaRegistryServer

ENCODING_REACH: Final = 1.3
AVRO_REACH: Final = 5_000
PUBLISHING_REACH: Final = 0.8
_PARTITIONS: Final = 50
_QUERIES: Final = 500
_EVENTS: Final = 10_000
_ENCODED: Final = 100
_ENCODING_ROUNDS: Final = 20
_PUBLISHING_ROUNDS: Final = 6

_BARE: Final[Mapping[str, Mapping[str, Any]]] = {
    "a bare producer": {},
    "one with our settings": {
        "enable_idempotence": True,
        "compression_type": "zstd",
        "max_batch_size": 256 * 1024,
    },
}

Run = Callable[[Coroutine[Any, Any, float]], float]


def run() -> list[Row]:
    """Three rows for each form."""
    with LocalKafka() as kafka, SchemaRegistryServer() as registry, _loop() as on_loop:
        json = Settings(
            bootstrap_servers=kafka.bootstrap_servers, registry=RegistrySettings(url=registry.url)
        )
        asyncio.run(create_topics(kafka.bootstrap_servers, own_topics(json)))
        avro = msgspec.structs.replace(json, format="avro")
        schema = schema_of(LagEvent).parsed
        return [
            _encoding("JSON", json, on_loop, "msgspec", msgspec.json.Encoder().encode, _events()),
            _encoding(
                "Avro",
                avro,
                on_loop,
                "fastavro, of dicts ready made",
                lambda value: _bare_avro(schema, value),
                [msgspec.to_builtins(event, str_keys=True) for event in _events()],
            ),
            *_publishing("JSON", json, on_loop),
            *_publishing("Avro", avro, on_loop),
        ]


@contextmanager
def _loop() -> Iterator[Run]:
    loop = asyncio.new_event_loop()
    try:
        yield loop.run_until_complete
    finally:
        loop.close()


def _events() -> list[LagEvent]:
    """Of as many queries as are published together; no two are alike."""
    whole = example(LagEvent)
    assert isinstance(whole, LagEvent)
    (topic,) = whole.topics
    return [
        msgspec.structs.replace(
            whole,
            event_id=f"{number:08d}-0000-4000-8000-000000000001",
            query_id=f"{number:08d}-0000-4000-8000-000000000002",
            topics=[
                msgspec.structs.replace(
                    topic, partitions=[_partition(number, at) for at in range(_PARTITIONS)]
                )
            ],
        )
        for number in range(_QUERIES)
    ]


def _partition(query: int, number: int) -> PartitionLag:
    processed = 1_000_000 + 7_919 * query + number
    return PartitionLag(
        partition=number,
        processed_offset=processed,
        latest_offset=processed + query + number,
        earliest_offset=10_000 + query,
        lag=query + number,
        time_lag_s=query / 100,
        time_lag_method="interpolated",
        status="OK",
    )


def _encoding(
    form: str,
    settings: Settings,
    on_loop: Run,
    against: str,
    bare: Callable[[Any], object],
    values: list[Any],
) -> Row:
    say(f"encoding in {form}")
    writer = MessageFormats(settings).writer(LagEvent, settings.lag_topic)
    events = _events()[:_ENCODED]

    async def ours() -> float:
        await writer.prepare()
        began_s = time.perf_counter()
        for event in events:
            await writer.encode(event)
        return (time.perf_counter() - began_s) * 1_000

    def theirs() -> list[float]:
        began_s = time.perf_counter()
        for value in values[:_ENCODED]:
            bare(value)
        return [(time.perf_counter() - began_s) * 1_000]

    mine, other = in_turn(_ENCODING_ROUNDS, lambda: [on_loop(ours())], theirs)
    what = f"{_ENCODED} events of {_PARTITIONS} partitions to {form}"
    return at_most(what, mine, against, other, ENCODING_REACH)


def _bare_avro(schema: Any, value: Any) -> bytes:
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, schema, value)
    return buffer.getvalue()


def _publishing(form: str, settings: Settings, on_loop: Run) -> Iterator[Row]:
    # As the service does when all is imported: Python's collector looks at what is new only.
    gc.collect()
    gc.freeze()
    for against, options in _BARE.items():
        say(f"publishing in {form}, and by {against}")
        mine, other = in_turn(
            _PUBLISHING_ROUNDS,
            _sampler(on_loop, partial(_published, settings)),
            _sampler(on_loop, partial(_sent, settings, options)),
        )
        ratio, a_second = median(other) / median(mine), _EVENTS / median(mine)
        is_json = form == "JSON"
        yield Row(
            f"{_EVENTS:,} events published in {form}, a second",
            f"{a_second:,.0f}",
            f"{_EVENTS / median(other):,.0f}, {against} of the same bytes",
            times(ratio),
            f"≥ {times(PUBLISHING_REACH)}" if is_json else f"≥ {AVRO_REACH:,} a second",
            ratio >= PUBLISHING_REACH if is_json else a_second >= AVRO_REACH,
        )


def _sampler(on_loop: Run, measured: Callable[[], Coroutine[Any, Any, float]]) -> Sampler:
    return lambda: [on_loop(measured())]


async def _published(settings: Settings) -> float:
    """Seconds from the first event to the last acknowledgement."""
    assert settings.bootstrap_servers is not None
    resolved = settings.resolved(settings.bootstrap_servers)
    counters = Counters()
    publishing = Publishing(
        resolved,
        TrackedQueries(resolved, delivery_queue(1, counters), counters),
        counters,
        MessageFormats(settings),
        "service",
        owns=lambda _: True,
        successor=lambda _: None,
        request=lambda _: None,
    )
    events = _events()
    try:
        # Connected, and the schema known, as the bare producer's is.
        await publishing.publish(events[0])
        began_s = time.perf_counter()
        for _ in range(_EVENTS // _QUERIES):
            published = await asyncio.gather(*(publishing.publish(event) for event in events))
            assert all(published)
        return time.perf_counter() - began_s
    finally:
        await publishing.aclose()


async def _sent(settings: Settings, options: Mapping[str, Any]) -> float:
    """The same of a bare producer with these options."""
    assert settings.bootstrap_servers is not None
    writer = MessageFormats(settings).writer(LagEvent, settings.lag_topic)
    records: list[tuple[bytes, bytes, Headers]] = [
        (
            key_of(event.query_id),
            await writer.encode(event),
            lag_event_headers(event, writer.content_type),
        )
        for event in _events()
    ]
    async with AIOKafkaProducer(
        **client_options(ClusterAccess(settings.bootstrap_servers, settings.kafka)), **options
    ) as producer:
        key, value, headers = records[0]
        await producer.send_and_wait(settings.lag_topic, value, key=key, headers=headers)
        began_s = time.perf_counter()
        for _ in range(_EVENTS // _QUERIES):
            sending = [
                await producer.send(settings.lag_topic, value, key=key, headers=headers)
                for key, value, headers in records
            ]
            await asyncio.gather(*sending)
        return time.perf_counter() - began_s

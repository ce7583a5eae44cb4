"""From the callback's hand-over of an event to its lag on `consumer-lag`, against the bare calls.

Progress events of a query with one Kafka source go in one at a time, through the real queues and
loops, each from a thread that is not the loop's, as Py4J's is. `publish_interval_s` is 0: what is
measured is the way, not how often it is taken (by default once a second for a query).
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition

from benchmarks.comparison import Row, at_most, in_turn, say
from benchmarks.service_process import service_process, wait_for
from sparklag_jobs.demo.streams import create_topics
from sparklag_kafka.access import quiet_client_logs
from sparklag_listener.background_loop import BackgroundLoop
from sparklag_listener.driver_pipeline import DriverPipeline, Sink
from sparklag_listener.events.event_queue import Progressed
from sparklag_listener.publishing import publish_offsets
from sparklag_listener.stats import Stats
from sparklag_schemas import Settings, decode_lag_event
from sparklag_schemas.messages.headers import lag_event_headers
from sparklag_schemas.messages.topics import TopicSpec, key_of
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.server import EmbeddedService
from tests.listener.fakes import session_without_jvm
from tests.local_kafka import LocalKafka

REACH_EMBEDDED: Final = 2.0
REACH_STANDALONE: Final = 3.0
_PARTITIONS: Final = 12
_EVENTS: Final = 300
_WARM_UP: Final = 30
_PAUSE_S: Final = 0.02
_READY_S: Final = 60.0
_EVENT_S: Final = 10.0
_TOPIC, _BARE_TOPIC, _HOP_TOPIC = "measured", "bare", "hop"
_QUERY_ID: Final = "dd8b09d1-0000-4000-8000-000000000001"
_RUN_ID: Final = "79f1bf68-0000-4000-8000-000000000001"

Result = TypeVar("Result")


def run() -> list[Row]:
    """A row for each way to run the service."""
    quiet_client_logs()
    with LocalKafka() as broker:
        asyncio.run(_create_topics(broker.bootstrap_servers))
        rows = [_embedded(broker.bootstrap_servers)]
    # A broker of its own: the embedded service's topics and queries are not this one's.
    with LocalKafka() as broker:
        asyncio.run(_create_topics(broker.bootstrap_servers))
        return [*rows, _standalone(broker.bootstrap_servers)]


def _embedded(bootstrap_servers: str) -> Row:
    settings = _settings(bootstrap_servers)
    with _driver(settings, EmbeddedService().run) as driver:
        event = _wait_for_event(lambda: driver.stats.url)
        with _bare(driver, bootstrap_servers, event) as bare:

            def of_ours() -> list[float]:
                time.sleep(_PAUSE_S)
                return [driver.until_safe() * 1e3]

            def of_bare() -> list[float]:
                time.sleep(_PAUSE_S)
                return [driver.on_loop(bare.list_and_produce()) * 1e3]

            say(f"event_latency: embedded, an event of {len(event):,} bytes")
            in_turn(_WARM_UP, of_ours, of_bare)
            ours, other = in_turn(_EVENTS, of_ours, of_bare)
        driver.require_all_published()
    return at_most(
        "embedded: hand-over → acknowledged",
        ours,
        "ListOffsets + acknowledged produce",
        other,
        REACH_EMBEDDED,
    )


def _standalone(bootstrap_servers: str) -> Row:
    settings = _settings(bootstrap_servers)
    with (
        service_process(bootstrap_servers, publish_interval_s=0) as service,
        _driver(settings, publish_offsets) as driver,
    ):
        event = _wait_for_event(lambda: service.url)
        with _bare(driver, bootstrap_servers, event) as bare:

            def of_ours() -> list[float]:
                time.sleep(_PAUSE_S)
                return [driver.until_seen(bare) * 1e3]

            def of_bare() -> list[float]:
                time.sleep(_PAUSE_S)
                hop = driver.on_loop(bare.produce_and_fetch())
                return [(driver.on_loop(bare.list_and_produce()) + hop) * 1e3]

            say("event_latency: standalone, the service in a process of its own")
            in_turn(_WARM_UP, of_ours, of_bare)
            ours, other = in_turn(_EVENTS, of_ours, of_bare)
    return at_most(
        "standalone: hand-over → read from consumer-lag",
        ours,
        "the same + produce and fetch",
        other,
        REACH_STANDALONE,
    )


class _Driver:
    """A driver's side of sparklag without Spark: events come from this thread."""

    def __init__(self, settings: Settings, sink: Sink) -> None:
        self.stats = Stats()
        self._batch = 0
        self._loop = BackgroundLoop()
        self._pipeline, self._running = self.on_loop(self._begin(settings, sink))

    def hand_over(self) -> float:
        """The next batch's progress, handed over as the listener does it; the moment."""
        self._batch += 1
        text = _progress(self._batch)
        at_s = time.perf_counter()
        self._loop.call(self._pipeline.receive, Progressed(text=text, at_ms=epoch_ms()))
        return at_s

    def until_safe(self) -> float:
        """Seconds from hand-over until the pipeline calls the event safe: acknowledged."""
        at_s = self.hand_over()
        return self.on_loop(self._flushed()) - at_s

    def until_seen(self, bare: _Bare) -> float:
        """Seconds from hand-over until a consumer of `consumer-lag` has the event."""
        seen = self._loop.submit(bare.see_batch(self._batch + 1))
        at_s = self.hand_over()
        return seen.result(_EVENT_S) - at_s

    def on_loop(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run on the driver's own loop, and wait for it."""
        return self._loop.submit(work).result(_READY_S)

    def require_all_published(self) -> None:
        """An event that was skipped is a fast one."""
        if self.stats.published != self._batch or self.stats.failed:
            raise RuntimeError(f"of {self._batch} events: {self.stats}")

    def close(self) -> None:
        """End the pipeline and the loop."""
        self.on_loop(self._end())
        self._loop.stop(_EVENT_S)

    async def _begin(
        self, settings: Settings, sink: Sink
    ) -> tuple[DriverPipeline, asyncio.Task[None]]:
        pipeline = DriverPipeline(settings, session_without_jvm(), sink, self.stats)
        return pipeline, asyncio.create_task(pipeline.run())

    async def _flushed(self) -> float:
        await asyncio.wait_for(self._pipeline.flush(), _EVENT_S)
        return time.perf_counter()

    async def _end(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)


@contextmanager
def _driver(settings: Settings, sink: Sink) -> Iterator[_Driver]:
    driver = _Driver(settings, sink)
    driver.hand_over()
    try:
        yield driver
    finally:
        driver.close()


class _Bare:
    """The Kafka calls that cannot be done without, by themselves, with all metadata warm.

    On the driver's loop, so that both sides have the same thread.
    """

    def __init__(self, bootstrap_servers: str, value: bytes) -> None:
        self._value = value
        self._headers = lag_event_headers(decode_lag_event(value))
        self._measured = [TopicPartition(_TOPIC, number) for number in range(_PARTITIONS)]
        self._consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers)
        self._reader = AIOKafkaConsumer(_HOP_TOPIC, bootstrap_servers=bootstrap_servers)
        self._lag_reader = AIOKafkaConsumer("consumer-lag", bootstrap_servers=bootstrap_servers)
        # As sparklag's own: the same bytes go over the wire.
        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap_servers, enable_idempotence=True, compression_type="zstd"
        )

    async def start(self) -> None:
        """Connect, and learn what aiokafka would else learn in the first call."""
        for client in (self._consumer, self._reader, self._lag_reader, self._producer):
            await client.start()
        for reader in (self._reader, self._lag_reader):
            await reader.seek_to_end()
            for partition in reader.assignment():
                await reader.position(partition)

    async def stop(self) -> None:
        """Disconnect."""
        for client in (self._producer, self._lag_reader, self._reader, self._consumer):
            await client.stop()

    async def list_and_produce(self) -> float:
        """Seconds of one ListOffsets and one acknowledged produce of the lag event's bytes."""
        began = time.perf_counter()
        await self._consumer.end_offsets(self._measured)
        await self._produce(_BARE_TOPIC)
        return time.perf_counter() - began

    async def produce_and_fetch(self) -> float:
        """Seconds from a produce until a consumer that waits for it has the record."""
        began = time.perf_counter()
        sending = asyncio.ensure_future(self._produce(_HOP_TOPIC))
        await self._reader.getone()
        took = time.perf_counter() - began
        await sending
        return took

    async def see_batch(self, batch: int) -> float:
        """The moment at which the lag event of `batch` is read from `consumer-lag`."""
        while True:
            record = await self._lag_reader.getone()
            now = time.perf_counter()
            if (decode_lag_event(record.value).batch_id or 0) >= batch:
                return now

    async def _produce(self, topic: str) -> None:
        await self._producer.send_and_wait(
            topic, self._value, key=key_of(_QUERY_ID), headers=self._headers
        )


@contextmanager
def _bare(driver: _Driver, bootstrap_servers: str, value: bytes) -> Iterator[_Bare]:
    bare = driver.on_loop(_make_bare(bootstrap_servers, value))
    try:
        driver.on_loop(bare.start())
        yield bare
    finally:
        driver.on_loop(bare.stop())


async def _make_bare(bootstrap_servers: str, value: bytes) -> _Bare:
    # aiokafka's clients belong to the loop they are made on.
    return _Bare(bootstrap_servers, value)


def _wait_for_event(url: Callable[[], str | None]) -> bytes:
    """The lag event as REST gives it, once there is one with a lag."""

    def event() -> bytes | None:
        address = url()
        if address is None:
            return None
        with urllib.request.urlopen(f"{address}/lag/{_QUERY_ID}", timeout=5) as answer:
            body: bytes = answer.read()
        return body if decode_lag_event(body).total_lag is not None else None

    return wait_for(event)


def _settings(bootstrap_servers: str) -> Settings:
    return Settings(bootstrap_servers=bootstrap_servers, publish_interval_s=0.0, http_port=0)


async def _create_topics(bootstrap_servers: str) -> None:
    sizes = {_TOPIC: _PARTITIONS, _BARE_TOPIC: _PARTITIONS, _HOP_TOPIC: 1}
    specs = [TopicSpec(topic, size, 1) for topic, size in sizes.items()]
    await create_topics(bootstrap_servers, specs)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        for number in range(_PARTITIONS):
            await producer.send_and_wait(_TOPIC, b"order", partition=number)


def _progress(batch: int) -> str:
    """Spark's progress of a query at the start of every partition, without what nobody reads."""
    offsets = {_TOPIC: {str(number): 0 for number in range(_PARTITIONS)}}
    return json.dumps(
        {
            "id": _QUERY_ID,
            "runId": _RUN_ID,
            "name": "measured",
            "timestamp": "2026-01-01T00:00:00.000Z",
            "batchId": batch,
            "numInputRows": 1,
            "durationMs": {"addBatch": 80, "triggerExecution": 100},
            "sources": [
                {
                    "description": f"KafkaV2[Subscribe[{_TOPIC}]]",
                    "startOffset": offsets,
                    "endOffset": offsets,
                    "latestOffset": offsets,
                }
            ],
        }
    )

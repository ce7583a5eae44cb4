"""Drivers without Spark: what thousands of them write to `processed-offsets`.

Each query reads a topic of its own, and reports once in a heartbeat.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

from aiokafka import AIOKafkaProducer

from sparklag_schemas import Observation, Settings, SourcePosition, encode
from sparklag_schemas.messages.headers import observation_headers
from sparklag_schemas.messages.topics import key_of
from sparklag_schemas.timestamps import epoch_ms

PARTITIONS: Final = 10
"""Of each query."""
RECORDS: Final = 40
"""In partition 0 of each topic: the query reads one of them in each batch."""
HEARTBEAT_S: Final = 30.0
_PAUSES: Final = 300
"""In a heartbeat, at most."""


def query_id(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


def topic_name(number: int) -> str:
    return f"orders-{number:05d}"


async def report(
    producer: Any, observation: Observation, offsets_topic: str = "processed-offsets"
) -> None:
    """Send it as a driver does, without waiting for the acknowledgement."""
    await producer.send(
        offsets_topic,
        encode(observation),
        key=key_of(observation.query_id),
        headers=observation_headers(observation),
    )


class SimulatedDrivers:
    """Report their queries in turn from `start` to `stop`, on a loop of their own."""

    def __init__(self, bootstrap_servers: str, offsets_topic: str, queries: int) -> None:
        self.batches = False
        """Whether each report is of a completed batch, and not only that the query lives."""
        self._settings = Settings(bootstrap_servers=bootstrap_servers, offsets_topic=offsets_topic)
        self._queries = queries
        self._batch_ids = [0] * queries
        self._run_ids = [str(uuid4()) for _ in range(queries)]
        self._stopping = threading.Event()

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Every query has reported on entry; they go on until the exit."""
        thread = threading.Thread(target=asyncio.run, args=(self._report_in_turn(),))
        asyncio.run(self._report_once())
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()

    async def _report_once(self) -> None:
        async with _producer(self._settings) as producer:
            for number in range(self._queries):
                await self._report(producer, number, completes=True)
            await producer.flush()

    async def _report_in_turn(self) -> None:
        at_once = max(1, self._queries // _PAUSES)
        pause_s = at_once * HEARTBEAT_S / self._queries
        async with _producer(self._settings) as producer:
            due_s = time.monotonic()
            while True:
                for number in range(self._queries):
                    await self._report(producer, number, completes=self.batches)
                    if number % at_once == 0:
                        if self._stopping.is_set():
                            return
                        due_s += pause_s
                        await asyncio.sleep(max(0.0, due_s - time.monotonic()))

    async def _report(self, producer: Any, number: int, *, completes: bool) -> None:
        self._batch_ids[number] += completes
        observation = self._observation(number, "progress" if completes else "refresh")
        await report(producer, observation, self._settings.offsets_topic)

    def _observation(self, number: int, cause: str) -> Observation:
        batch_id, topic, now_ms = self._batch_ids[number], topic_name(number), epoch_ms()
        processed = {topic: dict.fromkeys(range(PARTITIONS), 0)}
        processed[topic][0] = min(batch_id, RECORDS)
        return Observation(
            observation_id=str(uuid4()),
            query_id=query_id(number),
            run_id=self._run_ids[number],
            query=f"orders-{number}",
            cause=cause,
            observed_at=now_ms,
            batch_id=batch_id,
            processed_at=now_ms if cause == "progress" else None,
            sources=[SourcePosition(source=0, processed=processed, topics=[topic])],
        )


async def write_records(bootstrap_servers: str, topics: int) -> None:
    """A batch of records in partition 0 of each topic."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        await producer.client.set_topics(map(topic_name, range(topics)))
        sent = []
        for number in range(topics):
            batch = producer.create_batch()
            for _ in range(RECORDS):
                batch.append(key=None, value=b"order", timestamp=None)
            batch.close()
            sent.append(await producer.send_batch(batch, topic_name(number), partition=0))
        await asyncio.gather(*sent)


def _producer(settings: Settings) -> Any:
    return AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers, linger_ms=20, compression_type="zstd"
    )

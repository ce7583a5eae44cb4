"""A real Spark query that has completed one batch, and whose second one lasts: its lag stays."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.error import HTTPError

from aiokafka import AIOKafkaProducer
from msgspec import json
from pyspark.sql import DataFrame, SparkSession

from benchmarks.large_cluster import create_topics
from benchmarks.service_process import ServiceProcess, wait_for
from sparklag_listener import observe

_TOPIC: Final = "real-orders"
_PARTITIONS: Final = 4
_RECORDS: Final = 1_000
_BATCH: Final = 400
_SHOWN_S: Final = 30.0


@dataclass(frozen=True)
class LastingBatch:
    """The query."""

    spark: SparkSession
    query_id: str

    @contextmanager
    def observed(self, bootstrap_servers: str, offsets_topic: str) -> Iterator[None]:
        """Its driver reports it inside of this."""
        with observe(self.spark, bootstrap_servers, offsets_topic=offsets_topic):
            yield

    def wrong_lag(self, service: ServiceProcess) -> str | None:
        """What the service answers with, in place of its lag. None: the lag is right."""
        deadline, answer = time.monotonic() + _SHOWN_S, "nothing"
        while time.monotonic() < deadline:
            try:
                event: Any = json.decode(service.get(f"/lag/{self.query_id}"))
            except HTTPError as error:
                answer = str(error)
            else:
                if event["total_lag"] == _RECORDS - _BATCH:
                    return None
                answer = f"a lag of {event['total_lag']}, {event['status']}: {event['reason']}"
            time.sleep(1)
        return f"{answer}, in place of {_RECORDS - _BATCH}"


@contextmanager
def lasting_batch(spark: SparkSession, bootstrap_servers: str) -> Iterator[LastingBatch]:
    """The query of a topic of its own, which is created."""
    asyncio.run(_write(bootstrap_servers))
    over = threading.Event()

    def take(batch: DataFrame, number: int) -> None:
        batch.write.format("noop").mode("append").save()
        if number > 0:
            over.wait()

    with tempfile.TemporaryDirectory() as checkpoint:
        frame = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap_servers)
            .option("subscribe", _TOPIC)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", _BATCH)
            .load()
        )
        query = (
            frame.writeStream.foreachBatch(take)
            .option("checkpointLocation", checkpoint)
            .queryName(_TOPIC)
            .start()
        )
        try:
            wait_for(lambda: query.lastProgress)
            yield LastingBatch(spark, str(query.id))
        finally:
            over.set()
            query.stop()


async def _write(bootstrap_servers: str) -> None:
    await create_topics(bootstrap_servers, [_TOPIC], _PARTITIONS)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers, linger_ms=20) as producer:
        for number in range(_RECORDS):
            await producer.send(_TOPIC, b"order", partition=number % _PARTITIONS)

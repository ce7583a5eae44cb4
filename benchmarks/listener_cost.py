"""What an event costs Spark's listener bus: sparklag's listener against PySpark's own.

A real query reads a topic of so many partitions; the last progress event it made is posted on the
session's bus again and again, and both listeners take it in turn.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from benchmarks.callback_clock import CallbackClock
from benchmarks.comparison import Row, cheaper, in_turn, say
from benchmarks.quiet_spark import quiet_spark
from sparklag_jobs.demo.streams import create_topics
from sparklag_listener.classic.listener import Py4jListener
from sparklag_listener.classic.session import wrapped
from sparklag_listener.events.event_queue import QueryEvent
from sparklag_schemas.messages.topics import TopicSpec
from tests.local_kafka import LocalKafka

REACH: Final = {1: 50.0, 100: 50.0, 2_000: 20.0}
"""Partitions, and how many times cheaper."""
_ROUNDS: Final = 16
_WARM_UP_EVENTS: Final = 200
"""Without them Java still interprets what a driver runs compiled after some minutes."""
_EVENTS: Final = 5
_PAUSE_S: Final = 0.05
_BATCHES: Final = 3
_DEADLINE_S: Final = 120.0


class StockListener(StreamingQueryListener):
    """Only counts: what is measured is what PySpark does to bring the event."""

    progressed = 0

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        self.progressed += 1

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        pass


def run() -> list[Row]:
    """A row for each number of partitions."""
    with LocalKafka() as broker, quiet_spark() as spark, tempfile.TemporaryDirectory() as folder:
        return [
            _compare(spark, broker.bootstrap_servers, partitions, Path(folder), reach)
            for partitions, reach in REACH.items()
        ]


def _compare(
    spark: SparkSession, bootstrap_servers: str, partitions: int, folder: Path, reach: float
) -> Row:
    taken: list[QueryEvent] = []
    failures: list[BaseException] = []
    gateway: Any = spark.sparkContext._gateway
    ours = wrapped(gateway, Py4jListener(spark._jvm, taken.append, failures.append))
    stock = StockListener()
    # Starts what both need: the server that takes Java's calls.
    spark.streams.addListener(stock)
    spark.streams.removeListener(stock)
    clock = CallbackClock(spark)
    with _last_event(spark, bootstrap_servers, partitions, folder) as event:
        size = len(event.progress().json())
        say(f"listener_cost: an event of {partitions:,} partition(s), {size:,} characters")

        def of_ours() -> list[float]:
            return clock.measure(ours, event, _EVENTS, _PAUSE_S)

        def of_stock() -> list[float]:
            return clock.measure(stock._jlistener, event, _EVENTS, _PAUSE_S)

        for listener in (ours, stock._jlistener):
            clock.measure(listener, event, _WARM_UP_EVENTS, 0)
        mine, theirs = in_turn(_ROUNDS, of_ours, of_stock)
    events = _WARM_UP_EVENTS + _ROUNDS * _EVENTS
    if failures or not len(taken) == stock.progressed == events:
        # A callback that fails is a cheap one.
        raise RuntimeError(f"of {events}: {len(taken)}, {stock.progressed} events; {failures}")
    return cheaper(
        f"listener: an event, {partitions:,} partition(s)",
        mine,
        "PySpark's own listener",
        theirs,
        reach,
    )


@contextmanager
def _last_event(
    spark: SparkSession, bootstrap_servers: str, partitions: int, folder: Path
) -> Iterator[Any]:
    """The event of a query that has completed some batches and waits for the next."""
    topic = f"listened-{partitions}"
    spec = TopicSpec(topic, partitions, 1)
    asyncio.run(create_topics(bootstrap_servers, [spec]))
    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("noop")
        .trigger(processingTime="1 second")
        .option("checkpointLocation", str(folder / topic))
        .start()
    )
    try:
        deadline = time.monotonic() + _DEADLINE_S
        for batch in range(1, _BATCHES + 1):
            asyncio.run(_write_record(bootstrap_servers, topic))
            while _batches_with_rows(query) < batch:
                time.sleep(0.1)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"batch {batch} of {topic} is not there: {query.status}")
        jvm: Any = spark._jvm
        event_class = getattr(
            jvm.org.apache.spark.sql.streaming, "StreamingQueryListener$QueryProgressEvent"
        )
        yield event_class(query._jsq.lastProgress())
    finally:
        query.stop()


def _batches_with_rows(query: Any) -> int:
    return sum(progress.numInputRows > 0 for progress in query.recentProgress)


async def _write_record(bootstrap_servers: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b"order", partition=0)

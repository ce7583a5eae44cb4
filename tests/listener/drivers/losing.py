"""A driver that loses what its observer relies on: events, its session, its JVM.

Arguments: the loss, the brokers to publish to, the topic to read, the topic to publish to, a
folder for checkpoints, and the brokers to read from.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from sparklag_listener import ObserverHandle, observe
from tests.listener.drivers import build_session, read_kafka, start_query, tell
from tests.listener.offsets_topic import OffsetsTopic
from tests.second_client import SecondClient
from tests.waiting import wait_for

HEARTBEAT_S = 0.5
LOSSES: dict[str, Callable[[Driver], None]] = {}


@dataclass
class Driver:
    """What a loss has to do with."""

    spark: SparkSession
    handle: ObserverHandle
    client: SecondClient
    topic: str
    published: OffsetsTopic
    checkpoint: str

    @property
    def servers(self) -> str:
        return self.client.bootstrap_servers

    def start(self, name: str = "orders", checkpoint: str | None = None) -> StreamingQuery:
        frame = read_kafka(self.spark, self.servers, subscribe=self.topic)
        return start_query(frame, checkpoint or self.checkpoint, name)

    def start_failing(self) -> StreamingQuery:
        """One whose second batch fails."""

        def fail(batch: Any, batch_id: int) -> None:
            if batch_id:
                raise ValueError("this batch breaks, password=S3CRET")

        writer = read_kafka(self.spark, self.servers, subscribe=self.topic).writeStream
        return (
            writer.queryName("failing")
            .foreachBatch(fail)
            .option("checkpointLocation", f"{self.checkpoint}-failing")
            .start()
        )


def loss(function: Callable[[Driver], None]) -> Callable[[Driver], None]:
    LOSSES[function.__name__] = function
    return function


class StuckListener(StreamingQueryListener):
    """Somebody else's. The first progress is the last it takes for a long while."""

    def __init__(self) -> None:
        self.stuck = threading.Event()
        self.released = threading.Event()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        self.stuck.set()
        self.released.wait(300)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        pass


@loss
def loses_events(driver: Driver) -> None:
    listener = StuckListener()
    driver.spark.streams.addListener(listener)
    going_on = driver.start("going on")
    assert listener.stuck.wait(200)
    stopped = driver.start("stopped", f"{driver.checkpoint}-stopped")
    failing = driver.start_failing()
    for query in (going_on, stopped, failing):
        tell(f"{query.name}: {query.id}")
        query.processAllAvailable()
    driver.client.produce(driver.topic, [b"more"] * 6)
    for query in (going_on, stopped):
        query.processAllAvailable()
    stopped.stop()
    wait_for(lambda: not failing.isActive, "it has failed", 200)
    # Two ends, and the last batch of the one that goes on.
    for query, cause in ((stopped, "terminated"), (failing, "terminated"), (going_on, "refresh")):
        driver.published.await_cause(query.id, cause)
    at_end = driver.client.end_offsets(driver.topic)
    driver.published.until(
        going_on.id,
        lambda seen: seen[-1].sources[0].processed == {driver.topic: at_end},
        "the end of the topic",
    )
    tell(f"recovered: {driver.handle.stats().recovered}")
    listener.released.set()
    # What the bus still holds comes late.
    driver.handle.close()
    tell(f"failed: {driver.handle.stats().failed}")
    os._exit(0)


@loss
def loses_its_life(driver: Driver) -> None:
    driver.start().processAllAvailable()
    tell("read all")
    signal.pause()


@loss
def loses_its_jvm(driver: Driver) -> None:
    query = driver.start()
    query.processAllAvailable()
    driver.published.await_cause(query.id, "idle")
    gateway: Any = driver.spark.sparkContext._gateway
    os.kill(gateway.proc.pid, signal.SIGKILL)
    gateway.proc.wait()
    # A callback that was under way fails too.
    poller = driver.handle._pipeline._poller
    wait_for(lambda: poller.is_lost, "the polls miss the JVM", 200)
    before = driver.handle.stats()
    time.sleep(6 * HEARTBEAT_S)
    after = driver.handle.stats()
    # Before, a busy JVM may have taken longer to answer than a poll waits.
    failed = after.failed - before.failed
    tell(f"failed: {failed} {after.last_error if failed else None}")
    began = time.monotonic()
    driver.handle.close()
    tell(f"closed: {time.monotonic() - began < 60}")


@loss
def loses_its_session(driver: Driver) -> None:
    first = driver.start()
    first.processAllAvailable()
    first_id = first.id
    driver.spark.stop()
    driver.published.await_cause(first_id, "terminated")
    tell(f"first: {first_id}")
    driver.spark = build_session()
    again = observe(
        driver.spark,
        driver.servers,
        offsets_topic=driver.published.name,
        topic_partitions=1,
        heartbeat_s=HEARTBEAT_S,
    )
    assert again is not driver.handle
    second = driver.start("second", f"{driver.checkpoint}-second")
    second.processAllAvailable()
    driver.published.await_cause(second.id, "progress")
    tell(f"second: {second.id}")
    tell(f"failed: {driver.handle.stats().failed + again.stats().failed}")


def main() -> None:
    name, publish_to, topic, offsets_topic, checkpoint, read_from = sys.argv[1:]
    spark = build_session({"spark.scheduler.listenerbus.eventqueue.streams.capacity": "1"})
    tell("session")
    handle = observe(
        spark,
        publish_to,
        offsets_topic=offsets_topic,
        topic_partitions=1,
        heartbeat_s=HEARTBEAT_S,
    )
    client = SecondClient(read_from)
    published = OffsetsTopic(client, offsets_topic)
    LOSSES[name](Driver(spark, handle, client, topic, published, checkpoint))


if __name__ == "__main__":
    main()

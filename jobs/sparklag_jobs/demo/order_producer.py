"""Writes orders to Kafka at a rising and falling rate; with `--all` also payments and invoices.

python -m sparklag_jobs.demo.order_producer --bootstrap-servers localhost:9092

The settings `kafka.*` apply to its connection.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec
from aiokafka import AIOKafkaProducer

from sparklag_jobs.demo.streams import (
    BUSIEST_CUSTOMER,
    ORDERS,
    STREAMS,
    RecordStream,
    create_topics,
    demo_topic,
    partition_of,
)
from sparklag_jobs.errors import PipelineError
from sparklag_kafka.access import client_options, quiet_client_logs
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_schemas.errors import SparklagError
from sparklag_schemas.runtime.tasks import call_on_signals
from sparklag_schemas.settings import ClusterAccess, load_settings
from sparklag_schemas.timestamps import epoch_ms

TICK_S: Final = 0.05
# Older overdue records are skipped: a burst after a pause would distort the wave.
MAX_OVERDUE_S: Final = 1.0
FLUSH_TIMEOUT_S: Final = 3.0

log = logging.getLogger(__name__)


async def produce(arguments: argparse.Namespace) -> None:
    """Send records until SIGINT or SIGTERM.

    Creates missing topics. Raises PipelineError if no broker responds, TopicUnavailable if a
    missing topic may not be created. Later it waits for a broker that does not respond.
    """
    stop = asyncio.Event()
    call_on_signals(lambda _: stop.set())
    kafka = msgspec.structs.replace(load_settings().kafka, client_id="order-producer")
    bootstrap_servers = arguments.bootstrap_servers
    streams = [
        replace(stream, topic=arguments.topic) if stream is ORDERS else stream
        for stream in (STREAMS if arguments.all else [ORDERS])
    ]
    specs = [demo_topic(stream.topic, stream.partitions) for stream in streams]
    await create_topics(bootstrap_servers, specs, kafka)
    access = ClusterAccess(bootstrap_servers, kafka)
    producer = AIOKafkaProducer(**client_options(access), linger_ms=20, compression_type="lz4")
    try:
        await producer.start()
        senders = [
            _Sender(producer, stream, len(await producer.partitions_for(stream.topic)))
            for stream in streams
        ]
    except KAFKA_FAILURES as error:
        raise PipelineError(f"cannot use Kafka at {bootstrap_servers}: {error}") from error
    log.info("writing to %s", ", ".join(stream.topic for stream in streams))
    start = last = time.monotonic()
    try:
        while not stop.is_set():
            now = time.monotonic()
            for sender in senders:
                await sender.send(now - start, min(now - last, MAX_OVERDUE_S))
            last = now
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stop.wait(), TICK_S)
    finally:
        try:
            await asyncio.wait_for(producer.stop(), FLUSH_TIMEOUT_S)
        except asyncio.TimeoutError:
            log.warning("Kafka did not take the last records within %g s", FLUSH_TIMEOUT_S)
    for sender in senders:
        log.info(
            "topic %s: sent %d records, %d failed",
            *(sender.stream.topic, sender.acknowledged, sender.failed),
        )


class _Sender:
    """Sends the records of a stream, and counts those that Kafka acknowledged."""

    def __init__(self, producer: AIOKafkaProducer, stream: RecordStream, partitions: int) -> None:
        self.stream = stream
        self._producer = producer
        self._partitions = partitions
        self._chance = random.Random()
        self._owed = 0.0
        self._sent = 0
        self.acknowledged = 0
        self.failed = 0

    async def send(self, elapsed_s: float, interval_s: float) -> None:
        """Send the records that are due after an interval that ends `elapsed_s` after the start."""
        self._owed += self.stream.per_second(elapsed_s) * interval_s
        while self._owed >= 1:
            record = self.stream.record(self._chance, self._sent, epoch_ms())
            future = await self._producer.send(
                self.stream.topic,
                msgspec.json.encode(record),
                key=record.customer.encode(),
                partition=partition_of(record.customer, self._partitions),
            )
            future.add_done_callback(self._count)
            self._sent += 1
            self._owed -= 1

    def _count(self, future: asyncio.Future[object]) -> None:
        if future.cancelled() or future.exception() is not None:
            self.failed += 1
        else:
            self.acknowledged += 1


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m sparklag_jobs.demo.order_producer",
        description="Write orders to Kafka, at a rate that rises and falls, until Ctrl-C."
        f" The busiest customer, {BUSIEST_CUSTOMER}, has the first partition for itself.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--bootstrap-servers", required=True, help="host:port[,host:port...]")
    parser.add_argument(
        "--topic", default=ORDERS.topic, help="of the orders; created where it is missing"
    )
    parser.add_argument(
        "--all", action="store_true", help="write the topics payments and invoices too"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the producer. Exit code: 0 after SIGINT or SIGTERM, 1 with one line after an error."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    quiet_client_logs()
    arguments = _arguments(argv)
    try:
        asyncio.run(produce(arguments))
    except SparklagError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Writes orders to Kafka, at a rate that rises and falls.

python -m sparklag_pipeline.demo.order_producer --bootstrap-servers localhost:9092
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

import msgspec
from aiokafka import AIOKafkaProducer

from sparklag_kafka.clients.client_options import client_options, quiet_client_logs
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_pipeline.demo.orders import (
    BUSIEST_CUSTOMER,
    ORDER_PARTITIONS,
    ORDERS_TOPIC,
    orders_per_second,
    partition_of,
    random_order,
)
from sparklag_pipeline.demo.topics import create_topics, demo_topic
from sparklag_pipeline.errors import PipelineError
from sparklag_schemas.errors import SparklagError
from sparklag_schemas.settings import ClusterAccess, KafkaSettings
from sparklag_schemas.timestamps import epoch_ms

TICK_S: Final = 0.05
# Orders that are more overdue than this are skipped: a burst after a pause would be no wave.
MAX_OVERDUE_S: Final = 1.0
FLUSH_TIMEOUT_S: Final = 3.0

log = logging.getLogger(__name__)


async def produce(arguments: argparse.Namespace) -> None:
    """Send orders until SIGINT or SIGTERM.

    Creates the topic where it is missing. Raises PipelineError where no broker answers,
    TopicUnavailable where the topic is missing and may not be created. Afterwards, a broker that
    goes away is waited for.
    """
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    topic, bootstrap_servers = arguments.topic, arguments.bootstrap_servers
    await create_topics(bootstrap_servers, [demo_topic(topic, ORDER_PARTITIONS)])
    access = ClusterAccess(bootstrap_servers, KafkaSettings(client_id="order-producer"))
    producer = AIOKafkaProducer(**client_options(access), linger_ms=20, compression_type="lz4")
    try:
        await producer.start()
        partitions = len(await producer.partitions_for(topic))
    except KAFKA_FAILURES as error:
        raise PipelineError(f"cannot use Kafka at {bootstrap_servers}: {error}") from error
    log.info("writing orders to topic %s", topic)
    sender = _OrderSender(producer, topic, partitions)
    try:
        await _send_orders(sender, stop)
    finally:
        try:
            await asyncio.wait_for(producer.stop(), FLUSH_TIMEOUT_S)
        except asyncio.TimeoutError:
            log.warning("Kafka did not take the last orders within %g s", FLUSH_TIMEOUT_S)
    log.info("sent %d orders, %d failed", sender.acknowledged, sender.failed)


async def _send_orders(sender: _OrderSender, stop: asyncio.Event) -> None:
    start = last = time.monotonic()
    owed = 0.0
    while not stop.is_set():
        now = time.monotonic()
        owed += orders_per_second(now - start) * min(now - last, MAX_OVERDUE_S)
        last = now
        while owed >= 1:
            await sender.send()
            owed -= 1
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(stop.wait(), TICK_S)


class _OrderSender:
    """Sends random orders, and counts what Kafka has acknowledged."""

    def __init__(self, producer: AIOKafkaProducer, topic: str, partitions: int) -> None:
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._chance = random.Random()
        self.sent = 0
        self.acknowledged = 0
        self.failed = 0

    async def send(self) -> None:
        order = random_order(self._chance, number=self.sent, now_ms=epoch_ms())
        future = await self._producer.send(
            self._topic,
            msgspec.json.encode(order),
            key=order.customer.encode(),
            partition=partition_of(order.customer, self._partitions),
        )
        future.add_done_callback(self._count)
        self.sent += 1

    def _count(self, future: asyncio.Future[object]) -> None:
        if future.cancelled() or future.exception() is not None:
            self.failed += 1
        else:
            self.acknowledged += 1


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m sparklag_pipeline.demo.order_producer",
        description="Write orders to Kafka, at a rate that rises and falls, until Ctrl-C."
        f" The busiest customer, {BUSIEST_CUSTOMER}, has the first partition for itself.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--bootstrap-servers", required=True, help="host:port[,host:port...]")
    parser.add_argument("--topic", default=ORDERS_TOPIC, help="created where it is missing")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 when ended by SIGINT or SIGTERM, 1 with one line when it cannot go on."""
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

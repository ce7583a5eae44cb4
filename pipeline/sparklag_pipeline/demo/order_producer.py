"""Writes orders to Kafka, at a rate that rises and falls.

python -m sparklag_pipeline.demo.order_producer --bootstrap-servers localhost:9092
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from sparklag_kafka.clients.connection import client_options, quiet_client_logs
from sparklag_pipeline.demo.orders import (
    BUSIEST_CUSTOMER,
    ORDER_PARTITIONS,
    ORDERS_TOPIC,
    OrderPartitioner,
    RateWave,
    orders_topic,
    random_order,
)
from sparklag_pipeline.demo.topics import create_topics
from sparklag_pipeline.errors import PipelineError
from sparklag_schemas.errors import SparklagError
from sparklag_schemas.runtime.clock import epoch_ms
from sparklag_schemas.settings import ClusterAccess, KafkaSettings

TICK_S: Final = 0.05
REPORT_S: Final = 5.0
# Past this much arrears the rest is let go: a burst after a pause would be no wave any more.
MAX_ARREARS_S: Final = 1.0
FLUSH_TIMEOUT_S: Final = 3.0

log = logging.getLogger(__name__)


async def produce(
    bootstrap_servers: str,
    *,
    topic: str = ORDERS_TOPIC,
    partitions: int = ORDER_PARTITIONS,
    wave: RateWave,
    stop: asyncio.Event,
    chance: random.Random | None = None,
) -> int:
    """Send orders until `stop` is set; how many Kafka acknowledged.

    Creates the topic where it is missing. Raises PipelineError where no broker answers,
    TopicUnavailable where the topic is missing and may not be created. Once it runs, a broker
    that goes away is waited for.
    """
    await create_topics(bootstrap_servers, [orders_topic(topic, partitions)])
    access = ClusterAccess(bootstrap_servers, KafkaSettings(client_id="order-producer"))
    producer = AIOKafkaProducer(
        **client_options(access),
        partitioner=OrderPartitioner(),
        linger_ms=20,
        compression_type="lz4",
    )
    try:
        await producer.start()
    except (KafkaError, OSError) as error:
        raise PipelineError(f"cannot use Kafka at {bootstrap_servers}: {error}") from error
    log.info("writing orders to topic %s", topic)
    run = _Run(producer, topic, wave, chance or random.Random())
    try:
        await run.send_until(stop)
    finally:
        await _close(producer)
    log.info("sent %d orders, %d failed", run.acknowledged, run.failed)
    return run.acknowledged


class _Run:
    def __init__(
        self, producer: AIOKafkaProducer, topic: str, wave: RateWave, chance: random.Random
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._wave = wave
        self._chance = chance
        self._sent = 0
        self.acknowledged = 0
        self.failed = 0

    async def send_until(self, stop: asyncio.Event) -> None:
        start = time.monotonic()
        reported_at, reported = start, 0
        let_go = 0.0
        while not stop.is_set():
            elapsed = time.monotonic() - start
            rate = self._wave.rate(elapsed)
            due = self._wave.records_until(elapsed) - let_go - self._sent
            let_go += max(0.0, due - rate * MAX_ARREARS_S)
            for _ in range(int(min(due, rate * MAX_ARREARS_S))):
                await self._send()
            if time.monotonic() - reported_at >= REPORT_S:
                seconds = time.monotonic() - reported_at
                log.info(
                    "%d orders acknowledged, %.0f/s (the wave is at %.0f/s), %d failed",
                    self.acknowledged,
                    (self.acknowledged - reported) / seconds,
                    rate,
                    self.failed,
                )
                reported_at, reported = time.monotonic(), self.acknowledged
            await _wait(stop, TICK_S)

    async def _send(self) -> None:
        order = random_order(self._chance, number=self._sent, now_ms=epoch_ms())
        future = await self._producer.send(
            self._topic, msgspec.json.encode(order), key=order.customer.encode()
        )
        future.add_done_callback(self._count)
        self._sent += 1

    def _count(self, future: asyncio.Future[object]) -> None:
        if future.cancelled() or future.exception() is not None:
            self.failed += 1
        else:
            self.acknowledged += 1


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except asyncio.TimeoutError:
        return


async def _close(producer: AIOKafkaProducer) -> None:
    try:
        await asyncio.wait_for(producer.stop(), FLUSH_TIMEOUT_S)
    except asyncio.TimeoutError:
        log.warning("Kafka did not take the last orders within %g s", FLUSH_TIMEOUT_S)


async def _run_until_signalled(arguments: argparse.Namespace) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await produce(
        arguments.bootstrap_servers,
        topic=arguments.topic,
        partitions=arguments.partitions,
        wave=RateWave(arguments.low, arguments.high, arguments.period),
        stop=stop,
    )


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m sparklag_pipeline.demo.order_producer",
        description="Write orders to Kafka, at a rate that rises and falls, until Ctrl-C."
        f" The busiest customer, {BUSIEST_CUSTOMER}, has the first partition for itself.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--bootstrap-servers", required=True, help="host:port[,host:port...]")
    parser.add_argument("--topic", default=ORDERS_TOPIC, help="created where it is missing")
    parser.add_argument(
        "--partitions", type=int, default=ORDER_PARTITIONS, help="of a topic that is created"
    )
    parser.add_argument("--low", type=float, default=100.0, help="orders per second, lowest")
    parser.add_argument("--high", type=float, default=3000.0, help="orders per second, highest")
    parser.add_argument("--period", type=float, default=40.0, help="seconds from low to low")
    arguments = parser.parse_args(argv)
    if not 0 <= arguments.low <= arguments.high:
        parser.error("--low must be at least 0 and at most --high")
    if arguments.period <= 0 or arguments.partitions < 1:
        parser.error("--period and --partitions must be above 0")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 when ended by SIGINT or SIGTERM, 1 with one line when it cannot go on."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    quiet_client_logs()
    arguments = _arguments(argv)
    try:
        asyncio.run(_run_until_signalled(arguments))
    except SparklagError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

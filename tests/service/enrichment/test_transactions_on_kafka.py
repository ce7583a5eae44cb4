"""What transactions on a real broker leave to read."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaProducer

from sparklag_schemas import IsolationLevel, OpenTransaction, PartitionLag
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.enrichment.cluster_offsets import MeasureTime
from sparklag_service.evaluation.evaluator import EvaluatedQuery, Evaluator
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.service.enrichment.sampling import Sampled, sampling, standing

POSITIONS = {0: 3, 1: 2, 2: 0, 3: 2, 4: 0}


@asynccontextmanager
async def transactional(servers: str, name: str) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(
        bootstrap_servers=servers, transactional_id=name, transaction_timeout_ms=600_000
    )
    async with producer:
        yield producer


async def write(producer: AIOKafkaProducer, topic: str, number: int, count: int) -> None:
    for _ in range(count):
        await producer.send_and_wait(topic, b"x", partition=number)


class Reader:
    """A query that does not move, evaluated on what its cluster answers."""

    def __init__(self, sampled: Sampled, topic: str, level: IsolationLevel) -> None:
        self.state = standing({topic: POSITIONS}, level, isolation_level=level)
        self._sampled = sampled
        self._last: EvaluatedQuery | None = None

    def partitions(self) -> list[PartitionLag]:
        now = MeasureTime(epoch_ms(), time.monotonic(), 0.0)
        self._last = Evaluator("service", 60.0).evaluate(
            *(self.state, self._sampled.enricher.offsets, now),
            event_id="id",
            cause="refresh",
            previous=self._last,
        )
        return self._last.event.topics[0].partitions


async def test_only_what_a_reader_gets_is_left_and_an_open_transaction_is_told(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name, 5)
    servers = kafka.bootstrap_servers
    async with (
        transactional(servers, f"{topic_name}-ends") as ends,
        transactional(servers, f"{topic_name}-stays") as stays,
        sampling(servers) as sampled,
    ):
        async with ends.transaction():
            for number, count in ((0, 3), (1, 3), (3, 1)):
                await write(ends, topic_name, number, count)
        await ends.begin_transaction()
        await write(ends, topic_name, 2, 3)
        await ends.abort_transaction()
        await stays.begin_transaction()
        await write(stays, topic_name, 3, 7)
        committed = Reader(sampled, topic_name, "read_committed")
        uncommitted = Reader(sampled, topic_name, "read_uncommitted")

        async def measured_until(condition: Callable[[], object], what: str) -> None:
            await sampled.until(condition, what, committed.state, uncommitted.state)

        def all_is_told() -> bool:
            by_committed, by_uncommitted = committed.partitions(), uncommitted.partitions()
            assert by_committed[4].open_transaction is None, "each ends soon"
            return (
                by_committed[3].open_transaction is not None
                and by_committed[2].readable_lag == by_uncommitted[0].readable_lag == 0
            )

        began_ms = epoch_ms()
        while not all_is_told():
            async with ends.transaction():
                await write(ends, topic_name, 4, 1)
                await measured_until(lambda: True, "they are measured")
            assert epoch_ms() - began_ms < 180_000
        marker, one_record, aborted, opened, _ = committed.partitions()
        assert (marker.lag, marker.readable_lag, marker.time_lag_s) == (1, 0, None)
        assert (one_record.lag, one_record.unread, one_record.status) == (2, 2, "OK")
        assert one_record.time_lag_s is not None
        assert (aborted.lag, aborted.unread) == (4, 0)
        assert isinstance(opened.open_transaction, OpenTransaction)
        assert (opened.lag, opened.open_transaction.records) == (0, 7)
        assert opened.open_transaction.since >= began_ms - 60_000
        marker, one_record, aborted, opened, _ = uncommitted.partitions()
        assert (marker.unread, one_record.unread, aborted.unread, opened.unread) == (0, 2, 4, 7)
        assert opened.open_transaction is None, "it reads them"
        await stays.commit_transaction()
        await measured_until(
            lambda: committed.partitions()[3].open_transaction is None, "the transaction ended"
        )

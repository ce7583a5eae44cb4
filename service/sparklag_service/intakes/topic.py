"""The topic intake: `processed-offsets`, shared with the other instances as a consumer group."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord, TopicPartition

from sparklag_schemas import ContractError, Settings, decode_observation
from sparklag_schemas.connection import client_options, explain_failure
from sparklag_schemas.queue import NewestQueue
from sparklag_schemas.topics import partition_of
from sparklag_service.commit_ledger import CommitLedger
from sparklag_service.counters import Counters
from sparklag_service.intakes import Delivery

_log = logging.getLogger(__name__)
_POLL_MS = 500
_COMMIT_INTERVAL_S = 1.0
_RETRY_S = 2.0
_SESSION_TIMEOUT_MS = 15_000
_REBALANCE_TIMEOUT_MS = 20_000
"""How long the others wait for this one to hand its partitions over: longer than a commit takes."""
_MAX_POLL_INTERVAL_MS = 60_000
"""An instance that has not polled for so long is stuck: its queries go to another."""


class TopicIntake:
    """Owning a partition means owning its queries.

    An offset is committed once the lag event its observation caused is acknowledged. A message
    that does not keep the contract is counted, logged with its position and skipped.
    """

    def __init__(
        self,
        settings: Settings,
        bootstrap_servers: str,
        queue: NewestQueue[Delivery],
        counters: Counters,
    ) -> None:
        self._settings = settings
        self._bootstrap_servers = bootstrap_servers
        self._queue = queue
        self._counters = counters
        self._consumer: AIOKafkaConsumer | None = None
        self._ledgers: dict[TopicPartition, CommitLedger] = {}
        self._partition_count = 0
        self.ready: str | None = "not a member of the consumer group yet"

    def adopts(self, query_id: str) -> bool:
        """Those whose messages are in a partition of this instance."""
        return self._owns(query_id)

    def keeps(self, query_id: str) -> bool:
        """The same: with the partition the query goes."""
        return self._owns(query_id)

    def pause(self) -> None:
        """Fetch nothing more; stay in the group until cancelled."""
        if self._consumer is not None:
            self._consumer.pause(*self._consumer.assignment())

    def _owns(self, query_id: str) -> bool:
        if not self._partition_count:
            return False
        partition = partition_of(query_id, self._partition_count)
        return TopicPartition(self._settings.offsets_topic, partition) in self._ledgers

    async def run(self) -> None:
        """Consume until cancelled; then commit what is done and leave the group."""
        while True:
            try:
                await self._consume()
            except (KafkaError, OSError, asyncio.TimeoutError) as error:
                cause = await explain_failure(self._bootstrap_servers, self._settings.kafka)
                self.ready = f"topic {self._settings.offsets_topic}: {cause or error!r}"
                _log.warning("intake of %s, trying again", self.ready)
            await asyncio.sleep(_RETRY_S)

    async def _consume(self) -> None:
        consumer = AIOKafkaConsumer(
            **self._options(),
            group_id=self._settings.group_id,
            enable_auto_commit=False,
            # The first start: every query's position counts, of a driver that died too.
            auto_offset_reset="earliest",
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
            max_poll_interval_ms=_MAX_POLL_INTERVAL_MS,
        )
        consumer.subscribe([self._settings.offsets_topic], listener=_Rebalance(self))
        self._consumer = consumer
        committing = None
        try:
            await consumer.start()
            committing = asyncio.create_task(self._commit_regularly())
            while True:
                batches = await consumer.getmany(timeout_ms=_POLL_MS)
                for partition, records in batches.items():
                    self._take(partition, records)
        finally:
            self.ready = "not a member of the consumer group"
            if committing is not None:
                committing.cancel()
            await self._leave(consumer)

    def _options(self) -> dict[str, Any]:
        return client_options(self._bootstrap_servers, self._settings.kafka)

    def _take(self, partition: TopicPartition, records: list[ConsumerRecord]) -> None:
        ledger = self._ledgers.get(partition)
        if ledger is None:
            return
        for record in records:
            ledger.take(record.offset)
            done = partial(ledger.done, record.offset)
            if record.value is None:
                done()
                continue
            try:
                observation = decode_observation(record.value)
            except ContractError as error:
                self._counters.malformed += 1
                _log.warning(
                    "skipped a message at %s[%d]@%d: %s",
                    record.topic,
                    record.partition,
                    record.offset,
                    error,
                )
                done()
                continue
            self._queue.put_nowait(Delivery(observation, done))

    async def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """From here on this instance answers for the queries of `partitions`."""
        assert self._consumer is not None
        self._ledgers = {partition: CommitLedger() for partition in partitions}
        known = self._consumer.partitions_for_topic(self._settings.offsets_topic)
        self._partition_count = len(known or ())
        self.ready = None
        _log.info("owns %d of %d partitions", len(self._ledgers), self._partition_count)

    async def revoked(self) -> None:
        """Up to here it does: what is done is committed, so that the next owner goes on there."""
        await self._commit()
        self._ledgers = {}
        self.ready = "the group is sharing its partitions anew"

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(_COMMIT_INTERVAL_S)
            await self._commit()

    async def _commit(self) -> None:
        offsets = {
            partition: offset
            for partition, ledger in self._ledgers.items()
            if (offset := ledger.to_commit) is not None
        }
        if not offsets or self._consumer is None:
            return
        ledgers = self._ledgers
        try:
            await self._consumer.commit(offsets)
        except (KafkaError, OSError) as error:
            # Said again with the next commit; until then another owner would only repeat work.
            _log.warning("offsets not committed yet: %s", str(error) or type(error).__name__)
            return
        for partition, offset in offsets.items():
            ledgers[partition].committed(offset)

    async def _leave(self, consumer: AIOKafkaConsumer) -> None:
        try:
            await asyncio.wait_for(self._commit(), self._settings.shutdown_timeout_s / 2)
            await asyncio.wait_for(consumer.stop(), self._settings.shutdown_timeout_s / 2)
        except (KafkaError, OSError, asyncio.TimeoutError) as error:
            _log.warning("left the group without saying so: %s", error or type(error).__name__)
        self._ledgers = {}
        self._consumer = None


class _Rebalance(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, intake: TopicIntake) -> None:
        self._intake = intake

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._intake.revoked()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        await self._intake.assigned(assigned)

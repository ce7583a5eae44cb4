"""Records every batch's offsets in the offset store.

The recorder reads `processed-offsets` in its own consumer group: an unreachable store delays
nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.structs import ConsumerRecord, TopicPartition

from sparklag_kafka.clients.consumer import ContractConsumer
from sparklag_kafka.clients.contract_records import ContractRecords, safe
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_offsets.store import open_store
from sparklag_offsets.store.batch_record import BatchRecord
from sparklag_offsets.store.writer import StoreWriter
from sparklag_schemas import Observation, ResolvedSettings, Settings
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.runtime.tasks import run_together
from sparklag_service.counters import Counters
from sparklag_service.supervision import read_with_retry

_log = logging.getLogger(__name__)
_POLL_MS: Final = 500
_MOST_RECORDS: Final = 500
_FETCH_BYTES: Final = 16 * 1024 * 1024
_LEAVE_S: Final = 2.0


class StoreRecorder(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Writes records to the store, then commits them in the group. An instance that cannot reach
    its store leaves the group after aiokafka's `max_poll_interval_ms`: another may reach it. Raises
    UnusableStore."""

    def __init__(
        self, settings: ResolvedSettings, url: str, counters: Counters, formats: MessageFormats
    ) -> None:
        self._settings = settings
        self._counters = counters
        self._records = ContractRecords(
            Observation, settings.offsets_topic, settings, formats, counters.refusals
        )
        self._writer = StoreWriter(
            *(open_store(url, create=True), settings, lambda _: self._count()),
            check_log_ends=True,
            check_last=self._check_last,
        )
        self._observed: dict[int, tuple[Observation, ConsumerRecord]] = {}
        """The observations that are written now, with their records, by `id`."""
        self._write_lock = asyncio.Lock()
        self._pending: NewestQueue[Observation] = NewestQueue(
            settings.queue_size, key=lambda observation: observation.query_id
        )
        self._topic_failure: str | None = None

    @property
    def failing(self) -> Mapping[str, str]:
        """The reasons why offsets are not recorded, by the part that fails."""
        parts = {
            "offset store": self._writer.failing,
            "offset store, its topic": self._topic_failure,
        }
        return {part: reason for part, reason in parts.items() if reason is not None}

    def record(self, observation: Observation) -> None:
        """Record an observation that is on no topic, of a watched checkpoint. While the store is
        unreachable, only the newest observation of each query is kept."""
        self._pending.put_nowait(observation)

    async def run(self) -> None:
        try:
            await run_together(
                self._writer.prune_regularly(),
                self._record_pending(),
                read_with_retry(
                    self._consume,
                    self._settings.offsets_topic,
                    self._settings,
                    self._counters,
                    partial(setattr, self, "_topic_failure"),
                ),
            )
        finally:
            await self._writer.aclose()

    async def _record_pending(self) -> None:
        while True:
            observation = await self._pending.get()
            await self._write([observation])
            self._pending.task_done()

    async def _write(self, observations: list[Observation]) -> None:
        async with self._write_lock:
            await self._writer.write(observations)
        self._count()

    def _count(self) -> None:
        """Update the counters, also during a write, which may wait for an unreachable store."""
        counts = self._writer.counts
        self._counters.batches_recorded = counts.batches
        self._counters.batches_refused = counts.refused
        self._counters.store_failures = counts.failures
        self._counters.batches_pruned = counts.pruned

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Called by aiokafka: nothing is pending."""

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Called by aiokafka: another instance may have written meanwhile."""
        self._writer.forget()

    async def _consume(self) -> None:
        consumer = ContractConsumer(
            self._settings,
            self._records.refuse_batch,
            group_id=store_group(self._settings),
            # Also records older observations that the topic still has.
            auto_offset_reset="earliest",
            fetch_max_bytes=_FETCH_BYTES,
        )
        consumer.subscribe([self._settings.offsets_topic], listener=self)
        try:
            await consumer.start()
            self._topic_failure = None
            while True:
                batches = await consumer.getmany(timeout_ms=_POLL_MS, max_records=_MOST_RECORDS)
                await self._take(record for records in batches.values() for record in records)
                if batches:
                    await self._commit(consumer, batches)
        finally:
            await consumer.leave_group(_LEAVE_S)

    async def _take(self, records: Iterable[ConsumerRecord]) -> None:
        async for chunk in self._records.chunks(records):
            self._observed = {}
            for record in chunk:
                if record.value is not None:
                    observation = self._records.decoded(record)
                    if observation is not None:
                        observation = safe(observation, record)
                        self._observed[id(observation)] = observation, record
            if self._observed:
                await self._write([observation for observation, _ in self._observed.values()])

    def _check_last(self, observation: Observation, last: BatchRecord) -> None:
        """Raises WrongTeam where the key of an observation may not report the recorded query."""
        observed = self._observed.get(id(observation))
        # The name that a checkpoint gives a query is that of a folder.
        if observed is not None and last.run_id is not None:
            self._records.check_key(observed[1], last.query_id, last.query)

    async def _commit(
        self, consumer: AIOKafkaConsumer, batches: Mapping[TopicPartition, list[ConsumerRecord]]
    ) -> None:
        offsets = {partition: records[-1].offset + 1 for partition, records in batches.items()}
        try:
            await consumer.commit(offsets)
        except KAFKA_FAILURES as error:
            # The partition's owner reads the records again, which changes nothing in the store.
            self._counters.commits_failed += 1
            _log.warning("recorded offsets were not committed: %s", error)


def store_group(settings: Settings) -> str:
    """The consumer group that reads `processed-offsets` for the store."""
    return f"{settings.group_id}-store"

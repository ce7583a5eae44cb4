"""The topic intake: `processed-offsets`, shared with the other instances as a consumer group."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.structs import ConsumerRecord, TopicPartition

from sparklag_kafka.access import explain_error
from sparklag_kafka.clients.consumer import ContractConsumer
from sparklag_kafka.clients.contract_records import ContractRecords
from sparklag_kafka.errors import KAFKA_FAILURES, error_text
from sparklag_schemas import Observation, ResolvedSettings
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.errors import WrongPlace
from sparklag_schemas.messages.headers import received_trace
from sparklag_schemas.messages.topics import key_of, partition_of
from sparklag_schemas.messages.validation import redacted
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.runtime.tasks import cancel_and_wait
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.counters import Counters
from sparklag_service.errors import ReadingInterrupted
from sparklag_service.intakes import BatchTrace, Delivery, RebalanceHandler
from sparklag_service.intakes.topic_messages import CommitLedger, UntrackedMessages
from sparklag_service.supervision import read_with_retry

_log = logging.getLogger(__name__)
_POLL_MS = 500
_MOST_RECORDS = 200
_FETCH_BYTES = 16 * 1024 * 1024
_ROOM = 200
"""Deliveries in the queue, above which further messages stay in Kafka."""
_UNTRACKED_POLL_MS = 20
_UNTRACKED_BESIDE = 10
"""Messages of untracked queries that are processed with each poll that has other messages too."""
_COMMIT_INTERVAL_S = 1.0
_BACKLOG_INTERVAL_S = 1.0
_BACKLOG_TIMEOUT_S = 5.0
_REBALANCE_STEP_S = 5.0
_SHARE_OF_LEAVING = 0.4
"""Share of `shutdown_timeout_s`."""
_END_S = 0.2
_SESSION_TIMEOUT_MS = 15_000
_HEARTBEAT_MS = 1_000
"""Members are notified of a rebalance within this time."""
_REBALANCE_TIMEOUT_MS = 20_000
"""How long the group waits for this member's revocation, which takes less."""
_MAX_POLL_INTERVAL_MS = 60_000
"""An instance that has not polled for this long is stuck: another one gets its queries."""


@dataclass(eq=False, repr=False)
class TopicIntake(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Reads the partitions of this instance: owning a partition means owning its queries.

    An offset is committed once the lag event of its observation is acknowledged, or a later
    observation of the same query has arrived, whose offset waits for its own event. A message that
    violates the contract is skipped.
    """

    _settings: ResolvedSettings
    _queue: NewestQueue[Delivery]
    _counters: Counters
    _formats: MessageFormats
    _consumer: AIOKafkaConsumer | None = None
    _ledgers: dict[TopicPartition, CommitLedger] = field(default_factory=dict)
    _untracked: UntrackedMessages = field(default_factory=UntrackedMessages)
    _owns_partitions: bool = False
    _accepts: bool = False
    _partition_count: int = 0
    _generation: int = 0
    _paused: bool = False
    _failure: BaseException | None = None
    _not_member: str | None = "not a member of the consumer group yet"
    _unread: str | None = None
    """Why the last read of the topic failed."""
    _unmeasured: str | None = None
    """Why the backlog could not be measured: aiokafka waits for an unreachable Kafka without a
    report."""
    caught_up_s: float | None = None
    behind: int | None = None

    def __post_init__(self) -> None:
        read = self._settings, self._formats, self._counters.refusals
        self._records = ContractRecords(Observation, self._settings.offsets_topic, *read)

    @property
    def ready(self) -> str | None:
        return self._unread or self._not_member or self._unmeasured

    def may_adopt(self, query_id: str) -> bool:
        """See `owns`: a query belongs to its partition."""
        return self.owns(query_id)

    def owns(self, query_id: str) -> bool:
        """Return whether the query's messages are in a partition of this instance."""
        if not self._owns_partitions:
            return False
        partition = partition_of(query_id, self._partition_count)
        return TopicPartition(self._settings.offsets_topic, partition) in self._ledgers

    def pause(self) -> None:
        """Fetch no more messages; stay in the group until cancelled."""
        self._paused = True

    async def run(self, handler: RebalanceHandler) -> None:
        """Consume until cancelled; then commit what is done and leave the group."""
        self._handler: RebalanceHandler = handler
        await read_with_retry(
            self._consume,
            self._settings.offsets_topic,
            self._settings,
            self._counters,
            partial(setattr, self, "_unread"),
        )

    async def _consume(self) -> None:
        consumer = ContractConsumer(
            self._settings,
            self._records.refuse_batch,
            group_id=self._settings.group_id,
            # At the first start every query's position counts, even of a dead driver.
            auto_offset_reset="earliest",
            fetch_max_bytes=_FETCH_BYTES,
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=_HEARTBEAT_MS,
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
            max_poll_interval_ms=_MAX_POLL_INTERVAL_MS,
        )
        consumer.subscribe([self._settings.offsets_topic], listener=self)
        self._consumer = consumer
        self._failure = None
        background: list[asyncio.Task[None]] = []
        try:
            await consumer.start()
            background = [
                asyncio.create_task(self._commit_regularly()),
                asyncio.create_task(self._measure_backlog_regularly(consumer)),
            ]
            await self._poll(consumer)
        finally:
            self._left("not a member of the consumer group")
            await cancel_and_wait(*background, cancel_again_s=_END_S)
            await self._leave(consumer)

    async def _poll(self, consumer: AIOKafkaConsumer) -> None:
        polled_s = time.monotonic()
        while True:
            batches, accepted = {}, self._accepts
            poll_ms = _UNTRACKED_POLL_MS if self._untracked else _POLL_MS
            if not (self._paused or self._untracked.is_full):
                batches = await consumer.getmany(timeout_ms=poll_ms, max_records=_MOST_RECORDS)
            else:
                await asyncio.sleep(poll_ms / 1000)
            if self._failure is not None:
                raise self._failure
            pause_s, polled_s = time.monotonic() - polled_s, time.monotonic()
            if pause_s > _SESSION_TIMEOUT_MS / 1000:
                # The session timed out: other members have the partitions.
                raise ReadingInterrupted(f"this process was suspended for {pause_s:.0f} s")
            if not self._accepts:
                # During a rebalance: these records are read again from the committed offsets.
                continue
            if accepted:
                self._unread = None
            await self._take(self._tracked(chain.from_iterable(batches.values())))
            if not self._paused:
                await self._take(self._untracked.next(_UNTRACKED_BESIDE if batches else _ROOM))

    def _tracked(self, records: Iterable[ConsumerRecord]) -> Iterator[ConsumerRecord]:
        """The records of tracked queries; records of other queries are queued."""
        for record in records:
            ledger = self._ledgers[TopicPartition(record.topic, record.partition)]
            ledger.take(record.offset)
            # A record without a key is decoded too, for the reason of its refusal.
            query_id = self._records.query_id(record) if record.key else ""
            if query_id is None or record.value is None:
                ledger.done(record.offset)
            elif record.key not in self._untracked and self._handler.tracks(query_id):
                yield record
            else:
                self._untracked.add(record)

    def _left(self, reason: str) -> None:
        self._not_member = reason
        self._unmeasured = None
        self.caught_up_s = None
        self.behind = None

    async def _take(self, records: Iterable[ConsumerRecord]) -> None:
        generation = self._generation
        async for chunk in self._records.chunks(records):
            for record in chunk:
                self._take_record(record)
            await asyncio.sleep(0)
            # A large record that is a chunk of its own waits for an empty queue.
            await self._queue.shrinks_to(_ROOM if len(chunk) > 1 else 0)
            if not self._accepts or generation != self._generation:
                return

    def _take_record(self, record: ConsumerRecord) -> None:
        ledger = self._ledgers[TopicPartition(record.topic, record.partition)]
        untracked = self._untracked

        def done() -> None:
            ledger.done(record.offset)
            untracked.done(record)

        observation = self._records.decoded(record)
        if observation is not None and (misplaced := self._misplaced(record, observation.query_id)):
            self._records.refuse(record, WrongPlace(misplaced))
            observation = None
        if observation is None:
            done()
            return
        trace, traced = None, self._settings.traces.endpoint is not None
        if traced and (context := received_trace(record.headers)) is not None:
            trace = BatchTrace(context, record.timestamp, epoch_ms())
        self._queue.put_nowait(Delivery(redacted(observation), done, record.offset, trace))

    def _misplaced(self, record: ConsumerRecord, query_id: str) -> str | None:
        if record.key != key_of(query_id):
            return "its key is not its query's id"
        if not self.owns(query_id):
            partition = partition_of(query_id, self._partition_count)
            return (
                f"the key of query {query_id} belongs in partition {partition}:"
                " was it written with another partitioner than Kafka's own (murmur2)?"
            )
        return None

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Own the queries of these partitions. Called by aiokafka."""
        owned = list(assigned)
        try:
            await asyncio.wait_for(self._take_over(owned), 2 * _REBALANCE_STEP_S)
        except Exception as error:
            # aiokafka would log the error and continue.
            self._failure = error
            return
        self._counters.rebalances += 1
        topic = self._settings.offsets_topic
        self._not_member = None if self._partition_count else f"topic {topic} does not exist"
        _log.info("owns %d of %d partitions", len(owned), self._partition_count)

    async def _take_over(self, owned: list[TopicPartition]) -> None:
        consumer = self._consumer
        assert consumer is not None
        partitions = consumer.partitions_for_topic(self._settings.offsets_topic)
        self._partition_count = len(partitions or ())
        committed = await asyncio.gather(*(consumer.committed(p) for p in owned))
        unread = [p for p, offset in zip(owned, committed, strict=True) if offset is None]
        firsts = await consumer.beginning_offsets(unread)
        self._ledgers = {partition: CommitLedger() for partition in owned}
        self._owns_partitions = bool(self._partition_count)
        await self._handler.on_assigned()
        # Records that arrived meanwhile were not processed: read them again from here.
        for partition, offset in zip(owned, committed, strict=True):
            consumer.seek(partition, firsts[partition] if offset is None else offset)
        self._generation += 1
        self._accepts = True

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Release the queries and commit the offsets that are done: the next owner continues there.
        Called by aiokafka."""
        self._owns_partitions = self._accepts = False
        self._left("the group is rebalancing")
        await self._handler.on_revoked()
        try:
            await asyncio.wait_for(self._commit(), _REBALANCE_STEP_S)
        except asyncio.TimeoutError:
            _log.warning("partitions were revoked before a commit: their messages are read again")
        self._forget_read()

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(_COMMIT_INTERVAL_S)
            await self._commit()

    async def _commit(self) -> None:
        ledgers = self._ledgers
        offsets = {
            partition: offset
            for partition, ledger in ledgers.items()
            if (offset := ledger.to_commit) is not None
        }
        if not offsets or self._consumer is None:
            return
        try:
            await self._consumer.commit(offsets)
        except KAFKA_FAILURES as error:
            # The next commit has these offsets; until then another owner repeats work.
            self._counters.commits_failed += 1
            _log.warning("offsets not committed yet: %s", error_text(error))
            return
        for partition, offset in offsets.items():
            ledgers[partition].committed = offset

    async def _measure_backlog_regularly(self, consumer: AIOKafkaConsumer) -> None:
        while True:
            await asyncio.sleep(_BACKLOG_INTERVAL_S)
            try:
                await asyncio.wait_for(self._measure_backlog(consumer), _BACKLOG_TIMEOUT_S)
            except KAFKA_FAILURES as error:
                # `caught_up_s` ages, which shows the failure.
                self.behind = None
                what = f"cannot read the end of topic {self._settings.offsets_topic}"
                self._unmeasured = self._unmeasured or what
                self._unmeasured = f"{what}: {await explain_error(error, self._settings.access)}"
            else:
                self._unmeasured = None

    async def _measure_backlog(self, consumer: AIOKafkaConsumer) -> None:
        requested_s, generation = time.monotonic(), self._generation
        owned = list(self._ledgers)
        if not owned or not self._owns_partitions:
            return
        ends = await consumer.end_offsets(owned)
        behind = 0
        for partition, log_end in ends.items():
            behind += max(0, log_end - await consumer.position(partition))
        self.behind = behind
        is_taken = self._queue.empty() and not self._untracked
        if behind == 0 and generation == self._generation and is_taken:
            self.caught_up_s = requested_s

    async def _leave(self, consumer: ContractConsumer) -> None:
        self._owns_partitions = self._accepts = False
        await consumer.leave_group(
            _SHARE_OF_LEAVING * self._settings.shutdown_timeout_s,
            self._handler.on_revoked,
            self._commit,
        )
        self._forget_read()
        self._consumer = None

    def _forget_read(self) -> None:
        self._ledgers = {}
        self._untracked = UntrackedMessages()

"""The topic intake: `processed-offsets`, shared with the other instances as a consumer group."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator
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
from sparklag_service.intakes.newcomers import Newcomers
from sparklag_service.intakes.reading import read_with_retry

_log = logging.getLogger(__name__)
_POLL_MS = 500
_MOST_RECORDS = 200
_FETCH_BYTES = 16 * 1024 * 1024
_ROOM = 200
"""With more deliveries than this in the queue, the rest stays in Kafka."""
_NEWCOMERS_POLL_MS = 20
_NEWCOMERS_BESIDE = 10
"""New queries taken for each poll that has other messages too."""
_COMMIT_INTERVAL_S = 1.0
_BACKLOG_INTERVAL_S = 1.0
_BACKLOG_TIMEOUT_S = 5.0
_REBALANCE_STEP_S = 5.0
_SHARE_OF_LEAVING = 0.4
"""Of the time there is to shut down."""
_END_S = 0.2
_SESSION_TIMEOUT_MS = 15_000
_HEARTBEAT_MS = 1_000
"""How soon a member learns of a rebalance."""
_REBALANCE_TIMEOUT_MS = 20_000
"""How long the group waits for this member's revocation: longer than that takes."""
_MAX_POLL_INTERVAL_MS = 60_000
"""An instance that has not polled for so long is stuck: its queries go to another."""


class TopicIntake:
    """Owning a partition means owning its queries.

    An offset is committed once the lag event its observation caused is acknowledged, or a later
    observation of the same query has come: that one is read again, until its own event is. A
    message that does not keep the contract is skipped.
    """

    def __init__(
        self,
        settings: ResolvedSettings,
        queue: NewestQueue[Delivery],
        counters: Counters,
        formats: MessageFormats,
    ) -> None:
        self._settings = settings
        self._queue = queue
        self._counters = counters
        self._traced = settings.traces.endpoint is not None
        self._records = ContractRecords(
            Observation, settings.offsets_topic, settings, formats, counters.refusals
        )
        self._consumer: AIOKafkaConsumer | None = None
        self._ledgers: dict[TopicPartition, CommitLedger] = {}
        self._newcomers = Newcomers()
        self._owns_partitions = False
        self._accepts = False
        self._partition_count = 0
        self._generation = 0
        self._paused = False
        self._failure: BaseException | None = None
        self._not_member: str | None = "not a member of the consumer group yet"
        self._unread: str | None = None
        """Why the topic could not be read when that was tried last."""
        self._unmeasured: str | None = None
        """Why the backlog could not be measured then: aiokafka waits for a Kafka that is away, and
        reports nothing."""
        self.caught_up_s: float | None = None
        self.behind: int | None = None
        """Messages in its partitions that it has not taken in yet. None: not known."""

    @property
    def ready(self) -> str | None:
        """None once it takes observations in, or why it does not."""
        return self._unread or self._not_member or self._unmeasured

    def may_adopt(self, query_id: str) -> bool:
        """Whether the query's messages are in a partition of this instance."""
        return self.owns(query_id)

    def owns(self, query_id: str) -> bool:
        """The same: a query goes with its partition."""
        if not self._owns_partitions:
            return False
        partition = partition_of(query_id, self._partition_count)
        return TopicPartition(self._settings.offsets_topic, partition) in self._ledgers

    def pause(self) -> None:
        """Fetch nothing more; stay in the group until cancelled."""
        self._paused = True

    async def run(self, handler: RebalanceHandler) -> None:
        """Consume until cancelled; then commit what is done and leave the group."""
        await read_with_retry(
            partial(self._consume, handler),
            self._settings.offsets_topic,
            self._settings,
            self._counters,
            self._cannot_read,
        )

    async def _consume(self, handler: RebalanceHandler) -> None:
        consumer = ContractConsumer(
            self._settings,
            self._records.refuse_batch,
            group_id=self._settings.group_id,
            # The first start: every query's position counts, of a driver that died too.
            auto_offset_reset="earliest",
            fetch_max_bytes=_FETCH_BYTES,
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=_HEARTBEAT_MS,
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
            max_poll_interval_ms=_MAX_POLL_INTERVAL_MS,
        )
        consumer.subscribe([self._settings.offsets_topic], listener=_Rebalance(self, handler))
        self._consumer = consumer
        self._failure = None
        background: list[asyncio.Task[None]] = []
        try:
            await consumer.start()
            background = [
                asyncio.create_task(self._commit_regularly()),
                asyncio.create_task(self._measure_backlog_regularly(consumer)),
            ]
            await self._poll(consumer, handler)
        finally:
            self._left("not a member of the consumer group")
            await cancel_and_wait(*background, cancel_again_s=_END_S)
            await self._leave(consumer, handler)

    async def _poll(self, consumer: AIOKafkaConsumer, handler: RebalanceHandler) -> None:
        polled_s = time.monotonic()
        while True:
            batches, accepted = {}, self._accepts
            poll_ms = _NEWCOMERS_POLL_MS if self._newcomers else _POLL_MS
            if not (self._paused or self._newcomers.is_full):
                batches = await consumer.getmany(timeout_ms=poll_ms, max_records=_MOST_RECORDS)
            else:
                await asyncio.sleep(poll_ms / 1000)
            if self._failure is not None:
                raise self._failure
            pause_s, polled_s = time.monotonic() - polled_s, time.monotonic()
            if pause_s > _SESSION_TIMEOUT_MS / 1000:
                # The group has not waited for so long: others have its partitions.
                raise ReadingInterrupted(f"this process was suspended for {pause_s:.0f} s")
            if not self._accepts:
                # Rebalancing: these records are read again from the committed offsets.
                continue
            if accepted:
                self._unread = None
            await self._take(self._known(chain.from_iterable(batches.values()), handler))
            if not self._paused:
                await self._take(self._newcomers.next(_NEWCOMERS_BESIDE if batches else _ROOM))

    def _known(
        self, records: Iterable[ConsumerRecord], handler: RebalanceHandler
    ) -> Iterator[ConsumerRecord]:
        """Those of queries that are tracked; the others wait."""
        for record in records:
            ledger = self._ledgers[TopicPartition(record.topic, record.partition)]
            ledger.take(record.offset)
            # Without a key it is no query's: reading it says what else is wrong.
            query_id = self._records.query_id(record) if record.key else ""
            if query_id is None or record.value is None:
                ledger.done(record.offset)
            elif record.key not in self._newcomers and handler.tracks(query_id):
                yield record
            else:
                self._newcomers.add(record)

    def _cannot_read(self, reason: str) -> None:
        self._unread = reason

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
            # A record so large that it is a chunk of its own is not held beside others.
            await self._queue.shrinks_to(_ROOM if len(chunk) > 1 else 0)
            if not self._accepts or generation != self._generation:
                return

    def _take_record(self, record: ConsumerRecord) -> None:
        ledger, newcomers = (
            self._ledgers[TopicPartition(record.topic, record.partition)],
            self._newcomers,
        )

        def done() -> None:
            ledger.done(record.offset)
            newcomers.done(record)

        observation = self._records.decoded(record)
        if observation is None:
            done()
        elif record.key != key_of(observation.query_id):
            self._records.refuse(record, WrongPlace("its key is not its query's id"))
            done()
        elif not self.owns(observation.query_id):
            query_id = observation.query_id
            belongs = partition_of(query_id, self._partition_count)
            self._records.refuse(
                record,
                WrongPlace(
                    f"the key of query {query_id} belongs in partition {belongs}:"
                    " was it written with another partitioner than Kafka's own (murmur2)?"
                ),
            )
            done()
        else:
            trace = None
            if self._traced and (context := received_trace(record.headers)) is not None:
                trace = BatchTrace(context, record.timestamp, epoch_ms())
            self._queue.put_nowait(Delivery(redacted(observation), done, record.offset, trace))

    async def assigned(self, owned: list[TopicPartition], handler: RebalanceHandler) -> None:
        """Own the queries of these partitions from here on."""
        try:
            await asyncio.wait_for(self._take_over(owned, handler), 2 * _REBALANCE_STEP_S)
        except Exception as error:
            # aiokafka would log it and go on.
            self._failure = error
            return
        self._counters.rebalances += 1
        topic = self._settings.offsets_topic
        self._not_member = None if self._partition_count else f"topic {topic} does not exist"
        _log.info("owns %d of %d partitions", len(owned), self._partition_count)

    async def _take_over(self, owned: list[TopicPartition], handler: RebalanceHandler) -> None:
        consumer = self._consumer
        assert consumer is not None
        partitions = consumer.partitions_for_topic(self._settings.offsets_topic)
        self._partition_count = len(partitions or ())
        committed = await asyncio.gather(*(consumer.committed(p) for p in owned))
        unread = [p for p, offset in zip(owned, committed, strict=True) if offset is None]
        firsts = await consumer.beginning_offsets(unread)
        self._ledgers = {partition: CommitLedger() for partition in owned}
        self._owns_partitions = bool(self._partition_count)
        await handler.on_assigned()
        # Records of the meantime were not taken: they are read again from here.
        for partition, offset in zip(owned, committed, strict=True):
            consumer.seek(partition, firsts[partition] if offset is None else offset)
        self._generation += 1
        self._accepts = True

    async def revoked(self, handler: RebalanceHandler) -> None:
        """Release the queries; commit what is done, so that the next owner continues there."""
        self._owns_partitions = self._accepts = False
        self._left("the group is rebalancing")
        await handler.on_revoked()
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
            # Part of the next commit; until then another owner would only repeat work.
            self._counters.commits_failed += 1
            _log.warning("offsets not committed yet: %s", error_text(error))
            return
        for partition, offset in offsets.items():
            ledgers[partition].committed(offset)

    async def _measure_backlog_regularly(self, consumer: AIOKafkaConsumer) -> None:
        """Measure how far behind this intake is itself."""
        while True:
            await asyncio.sleep(_BACKLOG_INTERVAL_S)
            try:
                await asyncio.wait_for(self._measure_backlog(consumer), _BACKLOG_TIMEOUT_S)
            except KAFKA_FAILURES as error:
                # `caught_up_s` grows old, which shows it.
                self.behind = None
                await self._explain_unmeasured(error)
            else:
                self._unmeasured = None

    async def _explain_unmeasured(self, error: BaseException) -> None:
        what = f"cannot read the end of topic {self._settings.offsets_topic}"
        self._unmeasured = self._unmeasured or what
        self._unmeasured = f"{what}: {await explain_error(error, self._settings.access)}"

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
        is_taken = self._queue.empty() and not self._newcomers
        if behind == 0 and generation == self._generation and is_taken:
            self.caught_up_s = requested_s

    async def _leave(self, consumer: ContractConsumer, handler: RebalanceHandler) -> None:
        self._owns_partitions = self._accepts = False
        await consumer.leave_group(
            _SHARE_OF_LEAVING * self._settings.shutdown_timeout_s,
            handler.on_revoked,
            self._commit,
        )
        self._forget_read()
        self._consumer = None

    def _forget_read(self) -> None:
        self._ledgers = {}
        self._newcomers = Newcomers()


class _Rebalance(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, intake: TopicIntake, handler: RebalanceHandler) -> None:
        self._intake = intake
        self._handler = handler

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._intake.revoked(self._handler)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        await self._intake.assigned(list(assigned), self._handler)


class CommitLedger:
    """Offsets are taken in order and done in any order."""

    def __init__(self) -> None:
        self._open: deque[int] = deque()
        self._done: set[int] = set()
        self._next: int | None = None
        self._committed: int | None = None

    def take(self, offset: int) -> None:
        """An offset was read; larger than every one before."""
        self._open.append(offset)

    def done(self, offset: int) -> None:
        """What the offset caused is safe."""
        self._done.add(offset)
        while self._open and self._open[0] in self._done:
            self._next = self._open.popleft() + 1
            self._done.remove(self._next - 1)

    @property
    def to_commit(self) -> int | None:
        """The offset to commit (exclusive end); None when it was committed already."""
        return self._next if self._next != self._committed else None

    def committed(self, offset: int) -> None:
        """Kafka has it."""
        self._committed = offset

"""Reads `consumer-lag` into the view, and dispatches each record to the followers of the view.

Every instance reads every partition without a group, from the last minute before the log end (see
RecentRecords). At the start the view takes only the newest event of each query from that minute,
and the feed only the last records.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import ConsumerRecord, TopicPartition
from msgspec import Struct

from sparklag_kafka.clients.consumer import ContractConsumer, RecentRecords
from sparklag_kafka.clients.contract_records import ContractRecords, Refusals, shown
from sparklag_schemas import LagEvent, ResolvedSettings, Settings
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.errors import OverLimit, WrongPlace
from sparklag_schemas.messages.bounds import EpochMs, Name
from sparklag_schemas.messages.headers import group_of_source
from sparklag_schemas.messages.topics import key_of
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.counters import Counters
from sparklag_service.errors import ReadingInterrupted
from sparklag_service.supervision import read_with_retry
from sparklag_service.view.view import Entry, View

_log = logging.getLogger(__name__)
_POLL_MS = 500
_MOST_RECORDS: Final = 1_000
_MOST_RECORDS_AT_START: Final = 4_000
_FEED_RECORDS_AT_START: Final = 300
"""Records of each partition, about as many as the live stream can hold. The history reads the older
records again."""
_POLL_POSITION_S = 0.02
_offset = attrgetter("offset")


class Arrival(NamedTuple):
    """A record of `consumer-lag` that the view has accepted."""

    query_id: str
    partition: int
    offset: int
    at_ms: int
    """The record's timestamp, epoch milliseconds."""
    event: LagEvent | None
    """None: a tombstone."""
    document: bytes
    """The event's JSON; empty for a tombstone."""
    forgotten: LagEvent | None = None
    """The last event before a tombstone, if there was one."""


class Follower(Protocol):
    """Receives the records of the view, on the view's task: each method must return at once."""

    def began(self, restarted: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Reading begins. `ends`: log end offsets by partition. `restarted`: start offsets of the
        partitions that do not continue after the last record read: nothing was read before, records
        are skipped, or the topic was recreated."""

    def arrived(self, arrival: Arrival) -> None:
        """A record arrived that the view accepted; outdated events are left out."""


class Feed:
    """Dispatches each record once, in order and synchronously. A failure of a follower is counted;
    the first is logged."""

    def __init__(self, counters: Counters, *followers: Follower) -> None:
        self._counters = counters
        self.followers = [*followers]
        self._last: dict[int, int] = {}
        """The offset read last, by partition."""

    def begin(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Reading begins at `starts`: at the service's start, and after each failure, perhaps from
        an earlier offset. `ends`: log end offsets by partition."""
        restarted = {}
        for partition, start in starts.items():
            last = self._last.get(partition)
            if last is None or start > last + 1 or ends.get(partition, 0) <= last:
                restarted[partition] = start
                self._last[partition] = start - 1
        self._notify(lambda follower: follower.began(restarted, ends))

    def dispatch(self, arrival: Arrival) -> None:
        """Dispatch a record that the view accepted, unless it was dispatched before or precedes the
        start."""
        if arrival.offset <= self._last.get(arrival.partition, -1):
            return
        self._last[arrival.partition] = arrival.offset
        self._notify(lambda follower: follower.arrived(arrival))

    def _notify(self, call: Callable[[Follower], None]) -> None:
        for follower in self.followers:
            try:
                call(follower)
            except Exception:  # the view continues
                self._counters.followers_failed += 1
                if self._counters.followers_failed == 1:
                    what = "%s failed with an event; the next are not logged"
                    _log.exception(what, type(follower))


class _Version(Struct, frozen=True, kw_only=True, gc=False):
    """The fields of a lag event that decide which event is newer. Other fields are not decoded."""

    query_id: Name
    observed_at: EpochMs
    measured_at: EpochMs
    query: Name | None = None
    run_id: Name | None = None


class NewestRecords:
    """Filters out records that later records replace. Decodes only their versions."""

    def __init__(self, settings: Settings, formats: MessageFormats, refusals: Refusals) -> None:
        self._records = ContractRecords(
            _Version, settings.lag_topic, settings, formats, refusals, written_as=LagEvent
        )

    async def of(self, records: Iterable[ConsumerRecord]) -> list[ConsumerRecord]:
        """The records of a partition that count, in order: all tombstones, and between two
        tombstones of a query its event of the highest version. Refused events are left out, except
        those under another key than their query's. Raises RegistryError."""
        kept: list[ConsumerRecord] = []
        newest: dict[bytes, tuple[tuple[int, int], ConsumerRecord]] = {}
        async for chunk in self._records.chunks(records):
            for record in chunk:
                if record.value is None:
                    if record.key in newest:
                        kept.append(newest.pop(record.key)[1])
                    kept.append(record)
                    continue
                event = self._records.decoded(record)
                if event is None:
                    continue
                key, version = key_of(event.query_id), (event.observed_at, event.measured_at)
                if key != record.key:
                    kept.append(record)
                elif key not in newest or version >= newest[key][0]:
                    newest[key] = version, record
            await asyncio.sleep(0)
        kept.extend(record for _, record in newest.values())
        return sorted(kept, key=_offset)


@dataclass(eq=False, repr=False)
class ViewReader:
    """Reads the topic into the view. `ready` is None once the view has the state at the start."""

    _settings: ResolvedSettings
    _view: View
    _counters: Counters
    _formats: MessageFormats
    feed: Feed
    _consumer: AIOKafkaConsumer | None = None
    _other_group: tuple[str, int] = "", 0
    """The group id of another service that wrote last, and when, epoch milliseconds."""
    _taking: bool = False
    _failed: bool = False
    """True if reading failed after the last successful read."""
    ready: str | None = "the view is being read"
    caught_up: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        read = self._settings, self._formats, self._counters.refusals
        self._records = ContractRecords(LagEvent, self._settings.lag_topic, *read)
        self._newest = NewestRecords(*read)

    def other_group(self) -> str | None:
        """Another service, with its own group, that writes to the lag topic at present."""
        group_id, written_at_ms = self._other_group
        is_recent = written_at_ms > epoch_ms() - self._settings.silent_after_s * 1000
        return group_id if is_recent else None

    async def run(self) -> None:
        await read_with_retry(
            self._read, self._settings.lag_topic, self._settings, self._counters, self._not_ready
        )

    async def reach_end(self) -> None:
        """Return once the view has all that the topic has now."""
        ends: dict[TopicPartition, int] | None = None
        while True:
            consumer = self._consumer
            if consumer is not None and self.ready is None:
                if ends is None:
                    ends = await consumer.end_offsets(consumer.assignment())
                positions = [(await consumer.position(p), end) for p, end in ends.items()]
                if not self._taking and all(position >= end for position, end in positions):
                    return
            await asyncio.sleep(_POLL_POSITION_S)

    def _not_ready(self, reason: str) -> None:
        self.ready = reason
        self._failed = True

    async def _read(self) -> None:
        consumer = ContractConsumer(
            self._settings, self._records.refuse_batch, auto_offset_reset="earliest"
        )
        # Without a group this assigns every partition, also those added later.
        consumer.subscribe([self._settings.lag_topic])
        try:
            await consumer.start()
            ends = await consumer.end_offsets(consumer.assignment())
            missing = await RecentRecords(consumer, self._settings.heartbeat_s).seek(ends)
            starts = {p: await consumer.position(p) for p in ends}
            if not self.caught_up.is_set():
                # After the start, readers of the live stream must get every event.
                starts = {p: max(at, ends[p] - _FEED_RECORDS_AT_START) for p, at in starts.items()}
            self.feed.begin(
                {p.partition: start for p, start in starts.items()},
                {p.partition: end for p, end in ends.items()},
            )
            self._consumer = consumer
            # The assignment is empty after the topic was deleted, even once it is created again.
            while consumer.assignment():
                # A topic that can be described may still be unreadable.
                if not missing and not self._failed:
                    self.ready = None
                    self.caught_up.set()
                batches = await consumer.getmany(
                    timeout_ms=_POLL_MS,
                    max_records=_MOST_RECORDS if self.ready is None else _MOST_RECORDS_AT_START,
                )
                self._failed = False
                self._taking = True
                for partition, records in batches.items():
                    newer = bisect_left(records, starts.get(partition, 0), key=_offset)
                    await self._take_all(await self._newest.of(records[:newer]))
                    await self._take_all(records[newer:])
                for partition in list(missing):
                    # Compares positions: the last records of a log may not be delivered.
                    if await consumer.position(partition) >= missing[partition]:
                        del missing[partition]
                self._taking = False
            raise ReadingInterrupted("it does not exist")
        finally:
            self._taking = False
            self._consumer = None
            await consumer.stop()

    async def _take_all(self, records: list[ConsumerRecord]) -> None:
        async for chunk in self._records.chunks(records):
            for record in chunk:
                self._take(record)
            await asyncio.sleep(0)

    def _take(self, record: ConsumerRecord) -> None:
        query_id = self._records.query_id(record)
        if query_id is None:
            return
        event, document, forgotten = None, b"", None
        if record.value is None:
            if not self._records.is_genuine(record):
                return
            forgotten = self._view.remove(query_id)
        else:
            event = self._records.decoded(record)
            if event is None:
                return
            if event.query_id != query_id:
                self._records.refuse(record, WrongPlace("its key is not its query's id"))
                return
            event, document = shown(event, record)
            group_id = group_of_source(record.headers)
            if group_id is not None and group_id != self._settings.group_id:
                self._other_group = group_id, record.timestamp
            entry = Entry(event, document, time.monotonic(), record.partition, record.offset)
            try:
                is_newest = self._view.put(entry)
            except OverLimit as error:
                self._records.refuse(record, error)
                return
            if not is_newest:
                self._counters.outdated_events += 1
                return
        at = record.partition, record.offset, min(record.timestamp, epoch_ms())
        self.feed.dispatch(Arrival(query_id, *at, event, document, forgotten))

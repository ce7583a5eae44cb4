"""Writes records of one topic, and partition records after the events that they are of."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

from sparklag_kafka.access import explain_error
from sparklag_kafka.clients.producer import AcknowledgedProducer, Partitioner
from sparklag_kafka.errors import KAFKA_FAILURES, MessageTooLarge
from sparklag_schemas import (
    LagEvent,
    PartitionLag,
    PartitionRecord,
    ResolvedSettings,
    SparklagError,
    TopicLag,
)
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.codec import MessageWriter
from sparklag_schemas.messages.headers import Headers, partition_headers
from sparklag_schemas.messages.lag_event import partition_key, partition_record
from sparklag_schemas.runtime.logs import log_fields
from sparklag_schemas.runtime.queue import by_count
from sparklag_service.counters import Counters
from sparklag_service.publishing.cadence import partition_changed

_log = logging.getLogger(__name__)
_TOPIC_RETRY_S = 2.0
Outcome = Literal["acknowledged", "too large", "failed"]


class TopicWriter:
    """To `topic`, in the form of `form`."""

    def __init__(self, settings: ResolvedSettings, topic: str, form: MessageWriter) -> None:
        self._settings = settings
        self._topic = topic
        self._form = form
        self._producer = AcknowledgedProducer(settings)
        self.failing: str | None = None
        """Why the newest record was not acknowledged. None: it was."""
        self._too_large: set[bytes] = set()
        self.failed = asyncio.Event()
        """Set by each failure: something may be mended."""
        self.waiting: str | None = None
        """Why nothing can be written yet. None: ready, or not checked."""

    @property
    def content_type(self) -> str:
        """Of the values."""
        return self._form.content_type

    async def stay_ready(self) -> None:
        """See to it that values can be written without anybody but Kafka. Until cancelled."""
        while True:
            try:
                await self._form.prepare()
            except SparklagError as error:
                if str(error) != self.waiting:
                    self.waiting = str(error)
                    _log.warning("cannot publish to topic %s yet, retrying: %s", self._topic, error)
                await asyncio.sleep(_TOPIC_RETRY_S)
            else:
                self.waiting = None
                await asyncio.get_running_loop().create_future()

    async def write(
        self,
        key: bytes,
        message: LagEvent | PartitionRecord | None,
        headers: Headers,
        partitioner: Partitioner | None = None,
    ) -> Outcome:
        """None is a tombstone. `failed`: it is to be written again."""
        try:
            value = None if message is None else await self._form.encode(message)
            await self._producer.send(
                self._topic,
                key=key,
                value=value,
                headers=headers,
                partitioner=partitioner,
            )
        except MessageTooLarge as error:
            if key not in self._too_large:
                self._too_large.add(key)
                _log.error(
                    "%s cannot be published: %s",
                    *(key.decode(), error),
                    extra=None if message is None else log_fields(message, str(error)),
                )
            return "too large"
        except (*KAFKA_FAILURES, SparklagError) as error:
            self.failed.set()
            await self._complain(error)
            return "failed"
        if self.failing is not None:
            self.failing = None
            _log.warning("publishing to topic %s again", self._topic)
        self._too_large.discard(key)
        return "acknowledged"

    async def aclose(self) -> None:
        """Disconnect."""
        await self._producer.aclose()

    async def _complain(self, error: BaseException) -> None:
        if self.failing is not None:
            return
        self.failing = f"cannot publish to topic {self._topic}"
        reason = f"{self.failing}: {await explain_error(error, self._settings.access)}"
        _log.warning("%s; trying again", reason)
        if self.failing is not None:
            # Nothing was acknowledged meanwhile.
            self.failing = reason


class Change(NamedTuple):
    """A record to be written. Without one, the partition is gone: a tombstone."""

    key: str
    record: PartitionRecord | None
    written: _Written | None


class _Written(NamedTuple):
    """What a key's last record was made of."""

    partition: PartitionLag
    query_status: str
    at_s: float


class PartitionChanges:
    """Of the queries that this instance publishes."""

    def __init__(self, heartbeat_s: float) -> None:
        self._heartbeat_s = heartbeat_s
        self._written: dict[str, dict[str, _Written | None]] = {}
        """By query id and key. None: another instance wrote the last record."""

    def taken_over(self, event: LagEvent) -> None:
        """Another instance published the query's newest event, with a record of each partition."""
        self._written[event.query_id] = {key: None for key, _, _ in _partitions(event)}

    def let_go(self, query_id: str) -> None:
        """Another instance publishes the query now."""
        self._written.pop(query_id, None)

    def due(self, event: LagEvent, now_s: float) -> list[Change]:
        """What to write now: what changed, what was not written for a heartbeat, what is gone."""
        written = self._written.setdefault(event.query_id, {})
        changes = []
        keys = set()
        for key, topic, partition in _partitions(event):
            keys.add(key)
            last = written.get(key)
            if (
                last is None
                or now_s - last.at_s >= self._heartbeat_s
                or last.query_status != event.status
                or partition_changed(last.partition, partition)
            ):
                record = partition_record(event, topic, partition)
                changes.append(Change(key, record, _Written(partition, event.status, now_s)))
        return changes + [Change(key, None, None) for key in written.keys() - keys]

    def all_gone(self, query_id: str) -> list[Change]:
        """A tombstone for each partition of a query that is forgotten."""
        return [Change(key, None, None) for key in self._written.get(query_id, ())]

    def written(self, query_id: str, change: Change) -> None:
        """The change is acknowledged."""
        written = self._written.get(query_id)
        if written is None:
            return
        if change.written is not None:
            written[change.key] = change.written
        else:
            written.pop(change.key, None)
            if not written:
                del self._written[query_id]


def _partitions(event: LagEvent) -> Iterator[tuple[str, TopicLag, PartitionLag]]:
    for topic in event.topics:
        for partition in topic.partitions:
            key = partition_key(event.query_id, topic.source, topic.topic, partition.partition)
            yield key, topic, partition


_AT_ONCE: Final = 200
_RETRY_S: Final = 2.0


class PartitionPublisher:
    """Runs beside the events. A record that fails is written again with its query's next event, at
    the latest at the heartbeat."""

    def __init__(
        self,
        settings: ResolvedSettings,
        owns: Callable[[str], bool],
        counters: Counters,
        formats: MessageFormats,
    ) -> None:
        """`owns`: whether this instance answers for a query id."""
        topic = settings.partition_topic
        self._writer = TopicWriter(settings, topic, formats.writer(PartitionRecord, topic))
        self._owns = owns
        self._counters = counters
        self._changes = PartitionChanges(settings.partition_heartbeat_s)
        self._waiting: dict[str, LagEvent | None] = {}
        """The newest event of each query; None: it is forgotten."""
        self._woken = asyncio.Event()

    def published(self, event: LagEvent) -> None:
        """Write what it changes, soon."""
        self._wait(event.query_id, event)

    def forget(self, query_id: str) -> None:
        """Write a tombstone for each of its partitions, soon."""
        self._wait(query_id, None)

    def adopt(self, event: LagEvent) -> None:
        """See PartitionChanges."""
        self._changes.taken_over(event)

    def release(self, query_id: str) -> None:
        """Another instance publishes it now."""
        self._waiting.pop(query_id, None)
        self._changes.let_go(query_id)

    async def run(self) -> None:
        """Publish until cancelled."""
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                while self._waiting:
                    query_id = next(iter(self._waiting))
                    event = self._waiting.pop(query_id)
                    if event is not None:
                        await self._publish(event)
                    elif not await self._write_all(query_id, self._changes.all_gone(query_id)):
                        # No further event of the query comes.
                        self._waiting.setdefault(query_id, None)
                        await asyncio.sleep(_RETRY_S)
        finally:
            await self._writer.aclose()

    def _wait(self, query_id: str, event: LagEvent | None) -> None:
        self._waiting[query_id] = event
        self._woken.set()

    async def _publish(self, event: LagEvent) -> None:
        if self._owns(event.query_id):
            changes = self._changes.due(event, time.monotonic())
            await self._write_all(event.query_id, changes, event.cluster)

    async def _write_all(self, query_id: str, changes: list[Change], cluster: str = "") -> bool:
        """Whether nothing of it is to be written again."""
        all_done = True
        for chunk in by_count(changes, _AT_ONCE):
            written = await asyncio.gather(*(self._write(change, cluster) for change in chunk))
            for change, done in zip(chunk, written, strict=True):
                if done:
                    self._changes.written(query_id, change)
                all_done = all_done and done
        return all_done

    async def _write(self, change: Change, cluster: str) -> bool:
        headers = []
        if change.record is not None:
            headers = partition_headers(
                change.record, change.key, cluster, self._writer.content_type
            )
        outcome = await self._writer.write(change.key.encode(), change.record, headers)
        if outcome == "acknowledged":
            self._counters.partition_records += 1
        else:
            self._counters.partition_failures += 1
        return outcome != "failed"

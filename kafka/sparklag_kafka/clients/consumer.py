"""aiokafka's consumer for topics to which anybody may write: their record batches are untrusted."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.consumer import fetcher
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.record import default_records, legacy_records
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import ConsumerRecord, TopicPartition

from sparklag_kafka.access import TrustedBrokers, client_options
from sparklag_kafka.errors import KAFKA_FAILURES, error_text
from sparklag_kafka.protocol.decompression import GZIP, LZ4, SNAPPY, ZSTD, decompress
from sparklag_schemas.runtime.tasks import UnexpectedCancellation, cancel_and_wait, run_in_task
from sparklag_schemas.settings import ResolvedSettings

OnUnreadable = Callable[[int, int, str], None]
"""Base offset of the batch, the offset after it, and why it cannot be read."""
_DECODERS: Final = {
    "gzip_decode": GZIP,
    "snappy_decode": SNAPPY,
    "lz4_decode": LZ4,
    "zstd_decode": ZSTD,
}


class _Limit(threading.local):
    most_bytes: int | None = None


_limit = _Limit()
_reader: ContextVar[tuple[int, OnUnreadable] | None] = ContextVar("_reader", default=None)


@contextmanager
def reading_untrusted(most_bytes: int, on_unreadable: OnUnreadable) -> Iterator[None]:
    """A consumer that is started here takes no batch of more than `most_bytes`, decompressed, and
    passes over what it cannot read. The tasks it starts inherit that."""
    _install()
    token = _reader.set((most_bytes, on_unreadable))
    try:
        yield
    finally:
        _reader.reset(token)


class BoundedRecords:
    """aiokafka's MemoryRecords, of which no batch decompresses to more than `most_bytes`, and each
    ends before what cannot be read."""

    def __init__(self, data: bytes, most_bytes: int, on_unreadable: OnUnreadable) -> None:
        _install()
        self._records = MemoryRecords(data)
        self._most_bytes = most_bytes
        self._on_unreadable = on_unreadable
        self.has_next = self._records.has_next
        self.size_in_bytes = self._records.size_in_bytes
        self.last_batch: Any = None
        """The batch that was taken last, aiokafka's own."""

    def next_batch(self) -> Any:
        batch = self.last_batch = self._records.next_batch()
        return None if batch is None else _Batch(batch, self._most_bytes, self._on_unreadable)


class _Batch:
    """One of aiokafka's, which ends before what cannot be read."""

    def __init__(self, batch: Any, most_bytes: int, on_unreadable: OnUnreadable) -> None:
        self._batch = batch
        self._most_bytes = most_bytes
        self._on_unreadable = on_unreadable

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> Iterator[Any]:
        next_record: Callable[[], Any] = partial(iter, self._batch)
        try:
            next_record = partial(next, self._bounded(next_record), None)
            while (record := self._bounded(next_record)) is not None:
                yield record
        except Exception as error:  # whatever such bytes happen to do
            batch = self._batch
            self._on_unreadable(
                batch.base_offset, batch.next_offset, str(error) or type(error).__name__
            )

    def __next__(self) -> Any:
        """The next record of a control batch, which is not compressed."""
        return next(self._batch)

    def _bounded(self, step: Callable[[], Any]) -> Any:
        _limit.most_bytes = self._most_bytes
        try:
            return step()
        finally:
            _limit.most_bytes = None


def _read_by(make: Callable[[bytes], Any], data: bytes) -> Any:
    reader = _reader.get()
    return make(data) if reader is None else BoundedRecords(data, *reader)


def _decode(decode: Callable[[Any], bytes], codec: int, payload: Any) -> bytes | bytearray:
    if _limit.most_bytes is None:
        return decode(payload)
    return decompress(codec, bytes(payload), _limit.most_bytes)


def _install() -> None:
    if fetcher.MemoryRecords is not MemoryRecords:
        return
    fetcher.MemoryRecords = partial(_read_by, MemoryRecords)
    for batch_type in (default_records.DefaultRecordBatch, legacy_records.LegacyRecordBatch):
        # The module of the compiled class, or of that in Python.
        module = __import__(batch_type.__module__, fromlist=["_"])
        for name, codec in _DECODERS.items():
            decode = getattr(module, name, None)
            if decode is not None:
                setattr(module, name, partial(_decode, decode, codec))


_log = logging.getLogger("sparklag.kafka")
_MAX_BYTES: Final = 16 * 1024 * 1024
"""Of record values in one `getmany`."""
_CHUNK_RECORDS: Final = 8
_MIN_STEP_TIMEOUT_S: Final = 0.2
_OFFSETS_GROUP: Final = "offsets"
"""Of aiokafka's connections to a broker, which have one for the coordinator too."""


class ContractConsumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka has no types
    """Skips batches that are larger than `limits.batch_mb`, decompressed, or cannot be read.

    It connects only to brokers that may see its password, and commits nothing by itself.
    """

    _closed: bool

    def __init__(
        self,
        settings: ResolvedSettings,
        on_unreadable: OnUnreadable,
        **options: Any,
    ) -> None:
        """`options` are aiokafka's. Raises SettingsError as `client_options` does."""
        super().__init__(
            **client_options(settings.access),
            enable_auto_commit=False,
            metadata_max_age_ms=round(settings.metadata_interval_s * 1000),
            **options,
        )
        TrustedBrokers(settings.access).guard(self._client)
        self._client.send = partial(_send, self._client.send)
        self._max_batch_bytes = settings.limits.batch_mb * 1024 * 1024
        self._on_unreadable = on_unreadable

    async def start(self) -> None:
        """See aiokafka."""
        with reading_untrusted(self._max_batch_bytes, self._on_unreadable):
            await super().start()

    async def leave_group(self, timeout_s: float, *first: Callable[[], Awaitable[None]]) -> None:
        """Take the steps in `first`, then stop: together in `timeout_s`, though each gets a short
        time at least. Failures are logged."""
        deadline_s = time.monotonic() + timeout_s
        for step in (*first, self.stop):
            task = asyncio.ensure_future(run_in_task(step()))
            timeout_s = max(_MIN_STEP_TIMEOUT_S, deadline_s - time.monotonic())
            try:
                await asyncio.wait({task}, timeout=timeout_s)
                if not task.done():
                    raise asyncio.TimeoutError
                task.result()
            except (*KAFKA_FAILURES, UnexpectedCancellation) as error:
                _log.warning("left the group uncleanly: %s", error_text(error))
            finally:
                await cancel_and_wait(task)

    async def stop(self) -> None:
        """Close it, and leave its group, also where a part of it fails to close.

        aiokafka's own awaits tasks that it has cancelled and raises their CancelledError, which
        would end whoever awaits it; and after a failure it leaves tasks that reconnect.
        """
        if self._closed:
            return
        self._closed = True
        parts: list[Any] = [part for part in (self._coordinator, self._fetcher) if part is not None]
        try:
            for part in parts:
                closing = asyncio.gather(part.close(), return_exceptions=True)
                for failure in await closing:
                    if isinstance(failure, Exception):
                        raise failure
        finally:
            for task in _tasks_of(parts):
                task.cancel()
            await self._client.close()

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int = 500
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """See aiokafka, which decompresses `max_records` of any size; this returns fewer large
        ones."""
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        count = size = 0
        while count < max_records and size < _MAX_BYTES:
            chunk_size = min(_CHUNK_RECORDS, max_records - count)
            chunk = await super().getmany(
                *partitions, timeout_ms=timeout_ms, max_records=chunk_size
            )
            for partition, records in chunk.items():
                taken.setdefault(partition, []).extend(records)
                count += len(records)
                size += sum(len(record.value or b"") for record in records)
            if not chunk or self._subscription.reassignment_in_progress:
                break
            # From here on it does not wait: what was taken stays this member's.
            timeout_ms = 0
        return taken


async def _send(
    send: Callable[..., Awaitable[Any]], node_id: int, request: Any, **options: Any
) -> Any:
    """Offsets are requested on a connection of their own: a broker answers in order, and a fetch at
    the log end waits for half a second."""
    if isinstance(request, OffsetRequest):
        options = {"group": _OFFSETS_GROUP}
    return await send(node_id, request, **options)


def _tasks_of(parts: Iterable[object]) -> Iterator[asyncio.Task[object]]:
    for part in parts:
        for value in vars(part).values():
            for item in value if isinstance(value, set) else (value,):
                if isinstance(item, asyncio.Task):
                    yield item

"""Record batches as others wrote them, read by aiokafka without harm.

aiokafka decompresses a batch into whatever comes out, and what it cannot read (a header's name that
is not UTF-8) it fails on again and again: its position stays where it is. Both ways one message
would end all who read the topic. There is no setting for either, so two names are put in its place,
which do as before but for consumers that are started in `reading_untrusted`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

from aiokafka.consumer import fetcher
from aiokafka.record import default_records, legacy_records
from aiokafka.record.memory_records import MemoryRecords

from sparklag_kafka.protocol.decompression import GZIP, LZ4, SNAPPY, ZSTD, decompress

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

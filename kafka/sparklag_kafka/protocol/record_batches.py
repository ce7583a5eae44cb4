"""Record batches of untrusted producers: bounded in size, and readable up to their first error.
aiokafka's own decompression is unbounded: some kilobytes may become gigabytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from io import BytesIO
from typing import Any, Final

import cramjam  # as aiokafka does
from aiokafka.consumer import fetcher
from aiokafka.record import default_records, legacy_records
from aiokafka.record.memory_records import MemoryRecords

from sparklag_kafka.errors import Undecodable

_SNAPPY: Final = 2
_DECODERS: Final = {"gzip_decode": 1, "snappy_decode": _SNAPPY, "lz4_decode": 3, "zstd_decode": 4}
"""Kafka's number of each codec, by the name of aiokafka's function."""
_DECOMPRESS_INTO: Final[dict[int, Callable[[bytes, bytearray], int]]] = {
    1: cramjam.gzip.decompress_into,
    3: cramjam.lz4.decompress_into,
    4: cramjam.zstd.decompress_into,
}
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_USUAL_RATIO, _MAX_RATIO = 16, 20
_ANY_RATIO_BYTES: Final = 8 * 1024 * 1024  # may come out of however little
_MIN_BUFFER_BYTES: Final = 65_536
_BUFFER_GROWTH: Final = 4


def decompress(codec: int, data: bytes, max_bytes: int) -> bytearray:
    """Decompress `data`; `codec` is its number in Kafka. Raises Undecodable."""
    max_bytes = min(max_bytes, _ANY_RATIO_BYTES + _MAX_RATIO * len(data))
    if codec != _SNAPPY and codec not in _DECOMPRESS_INTO:
        raise Undecodable(f"unknown compression codec {codec}")
    try:
        if codec == _SNAPPY:
            return _decompress_snappy(data, max_bytes)
        return _decompress_growing(_DECOMPRESS_INTO[codec], data, max_bytes)
    except cramjam.DecompressionError as error:
        raise Undecodable(str(error)) from error


def _decompress_growing(
    decompress_into: Callable[[bytes, bytearray], int], data: bytes, max_bytes: int
) -> bytearray:
    """Grows the buffer: the size is unknown in advance, and `max_bytes` at once is too much."""
    size = min(max_bytes, _MIN_BUFFER_BYTES + _USUAL_RATIO * len(data))
    while True:
        buffer = bytearray(size)
        try:
            del buffer[decompress_into(data, buffer) :]  # no copy
            return buffer
        except cramjam.DecompressionError:
            if size == max_bytes:
                raise
        del buffer
        size = min(max_bytes, size * _BUFFER_GROWTH)


def _decompress_snappy(data: bytes, max_bytes: int) -> bytearray:
    blocks = list(_snappy_blocks(data))
    if sum(map(cramjam.snappy.decompress_raw_len, blocks)) > max_bytes:
        raise Undecodable(f"more than {max_bytes} bytes")
    result = bytearray()
    for block in blocks:
        result += bytes(cramjam.snappy.decompress_raw(block))
    return result


def _snappy_blocks(data: bytes) -> Iterator[bytes]:
    """Java's producers write the data in blocks, others do not."""
    if not data.startswith(_XERIAL_MAGIC):
        yield data
        return
    stream = BytesIO(data)
    stream.seek(_XERIAL_HEADER_BYTES)
    while prefix := stream.read(4):
        size = int.from_bytes(prefix, "big", signed=True)
        block = stream.read(max(size, 0))
        if len(prefix) < 4 or len(block) != size:
            raise Undecodable("the data ends within a block")
        yield block


OnUnreadable = Callable[[int, int, str], None]
"""Base offset of the batch, the offset after it, and why it cannot be read."""

_limit = threading.local()
_reader: ContextVar[tuple[int, OnUnreadable] | None] = ContextVar("_reader", default=None)


@contextmanager
def reading_untrusted(most_bytes: int, on_unreadable: OnUnreadable) -> Iterator[None]:
    """A consumer that is started in this context takes no batch of more than `most_bytes`,
    decompressed, and skips what it cannot read. The tasks that it starts inherit the context."""
    _install()
    token = _reader.set((most_bytes, on_unreadable))
    try:
        yield
    finally:
        _reader.reset(token)


class BoundedRecords:
    """aiokafka's MemoryRecords, with batches that decompress to at most `most_bytes` and end before
    anything unreadable."""

    def __init__(self, data: bytes, most_bytes: int, on_unreadable: OnUnreadable) -> None:
        _install()
        self._records = MemoryRecords(data)
        self._most_bytes = most_bytes
        self._on_unreadable = on_unreadable
        self.has_next = self._records.has_next
        self.size_in_bytes = self._records.size_in_bytes
        self.last_batch: Any = None
        """The last batch that was taken, as aiokafka's object."""

    def next_batch(self) -> Any:
        batch = self.last_batch = self._records.next_batch()
        return None if batch is None else _Batch(batch, self._most_bytes, self._on_unreadable)


class _Batch:
    """A batch of aiokafka's that ends before anything unreadable."""

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
    most_bytes = getattr(_limit, "most_bytes", None)
    return decode(payload) if most_bytes is None else decompress(codec, bytes(payload), most_bytes)


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

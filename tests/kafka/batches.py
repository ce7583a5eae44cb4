"""Batches as a broker keeps them, made here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct

from aiokafka.record.default_records import DefaultRecordBatchBuilder

_INT16, _INT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">q")
CONTROL, TRANSACTIONAL, LOG_APPEND_TIME, DELETE_HORIZON = 0x20, 0x10, 0x08, 0x40
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def batch(
    base_offset: int,
    times_ms: Sequence[int],
    *,
    codec: str = "none",
    offsets: Iterable[int] | None = None,
    producer_id: int = -1,
    flags: int = 0,
    last_offset: int | None = None,
    value: bytes = b"value",
    key: bytes | None = None,
) -> bytes:
    deltas = (
        [offset - base_offset for offset in offsets]
        if offsets is not None
        else list(range(len(times_ms)))
    )
    builder = DefaultRecordBatchBuilder(2, CODECS[codec], 0, producer_id, 0, 0, 1 << 24)
    for delta, time_ms in zip(deltas, times_ms, strict=True):
        assert builder.append(delta, time_ms, key, value, []) is not None
    raw = bytearray(builder.build())
    raw[0:8] = _INT64.pack(base_offset)
    raw[21:23] = _INT16.pack(_INT16.unpack_from(raw, 21)[0] | flags)
    if last_offset is not None:
        raw[23:27] = _INT32.pack(last_offset - base_offset)
    if flags & LOG_APPEND_TIME:
        raw[35:43] = _INT64.pack(max(times_ms))
    return bytes(raw)


def marker(offset: int, producer_id: int, *, commits: bool) -> bytes:
    """The control batch that ends a transaction."""
    key = _INT16.pack(0) + _INT16.pack(1 if commits else 0)
    flags = CONTROL | TRANSACTIONAL
    return batch(offset, [9], producer_id=producer_id, flags=flags, key=key)


def last_offset(records: bytes) -> int:
    base_offset, delta = records[:8], records[23:27]
    return int.from_bytes(base_offset, "big") + int.from_bytes(delta, "big", signed=True)

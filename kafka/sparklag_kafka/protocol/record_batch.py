"""The time of the first record from an offset on, in batches as a leader gives them. Pure.

Only the headers are read, unless the offset lies within a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as CutShort  # noqa: N812 - what it means here
from typing import Final, NamedTuple

from aiokafka.errors import KafkaError
from aiokafka.record.default_records import DefaultRecordBatch

from sparklag_kafka.protocol.decompression import NONE, Undecodable, decompress
from sparklag_kafka.protocol.fetch import Aborted

_HEAD = Struct(">qiibIhiqqqhii")
_BEFORE_LENGTH: Final = 12
"""Bytes that the length does not count."""
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 21
_MAGIC: Final = 2
_CODEC: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_DELETE_HORIZON: Final = 0x40
"""Its base timestamp is no record's: the cleaner keeps there when it may delete."""
_ABORT: Final = 0
_MOST_DECODED_BYTES: Final = 4 * 1024 * 1024
_UNREADABLE: Final = (KafkaError, CutShort, ValueError, IndexError, OverflowError)
"""What aiokafka's readers raise, in C and in Python, of bytes that are no records."""
_NEAR_MS: Final = 1_000
"""Where a batch cannot be decoded, and its records are no further apart, any of them will do."""

_INT16, _INT32 = Struct(">h"), Struct(">i")


class RecordsUnreadable(Exception):
    """Why a record's time cannot be read, in a few words."""


class Seen(NamedTuple):
    """The time of the record, epoch milliseconds, -1 where it has none; or, None, how far there is
    none that a reader gets, and how large the next batch is, where that is known."""

    timestamp_ms: int | None
    next_offset: int
    next_bytes: int | None
    first_bytes: int | None
    """Size of the first batch."""


class _Header(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int


def first_record_time(records: bytes, position: int, aborted: Sequence[Aborted]) -> Seen:
    """When the first record at `position` or after came that a reader gets: no control record, and
    none of the transactions that are `aborted`. Raises RecordsUnreadable.
    """
    at, next_offset = 0, position
    first_bytes = next_bytes = None
    to_come = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
    dead: set[int] = set()
    while len(records) - at > _MAGIC_AT:
        (length,) = _INT32.unpack_from(records, at + 8)
        size = _BEFORE_LENGTH + length
        if records[at + _MAGIC_AT] < _MAGIC:
            raise RecordsUnreadable("a message format older than Kafka 0.11's")
        if size < _HEAD.size:
            raise RecordsUnreadable("a batch shorter than its header")
        first_bytes = first_bytes or size
        if at + size > len(records):
            next_bytes = size
            break
        header = _Header(*_HEAD.unpack_from(records, at))
        last_offset = header.base_offset + header.last_offset_delta
        while to_come and to_come[-1].first_offset <= last_offset:
            dead.add(to_come.pop().producer_id)
        if header.attributes & _CONTROL:
            if header.producer_id in dead and _is_abort(header, records, at):
                dead.discard(header.producer_id)
        elif (
            last_offset >= position
            and header.records > 0
            and not (header.attributes & _TRANSACTIONAL and header.producer_id in dead)
        ):
            found_ms = _time_in(header, records, at, position)
            if found_ms is not None:
                return Seen(found_ms, next_offset, None, first_bytes)
        next_offset = max(next_offset, last_offset + 1)
        at += size
    return Seen(None, next_offset, next_bytes, first_bytes)


def _time_in(header: _Header, records: bytes, at: int, position: int) -> int | None:
    """Of the first record at `position` or after in the batch that begins at `at`; None where the
    cleaner has left none."""
    at_log = header.attributes & _LOG_APPEND_TIME
    if position <= header.base_offset and not header.attributes & _DELETE_HORIZON:
        return header.max_timestamp if at_log else header.base_timestamp
    try:
        batch = DefaultRecordBatch(_uncompressed(header, records, at))
        for record in batch:
            if record.offset >= position:
                return int(record.timestamp)
    except (Undecodable, *_UNREADABLE) as error:
        if at_log:
            return header.max_timestamp
        if 0 <= header.max_timestamp - header.base_timestamp <= _NEAR_MS:
            return header.base_timestamp
        raise RecordsUnreadable(f"a batch that cannot be decoded: {error}") from error
    return None


def _uncompressed(header: _Header, records: bytes, at: int) -> bytes:
    """The batch as if its producer had not compressed it."""
    end = at + _BEFORE_LENGTH + header.length
    codec = header.attributes & _CODEC
    if codec == NONE:
        return records[at:end]
    body = decompress(codec, records[at + _HEAD.size : end], _MOST_DECODED_BYTES)
    return b"".join(
        (
            records[at : at + _ATTRIBUTES_AT],
            _INT16.pack(header.attributes & ~_CODEC),
            records[at + _ATTRIBUTES_AT + 2 : at + _HEAD.size],
            body,
        )
    )


def _is_abort(header: _Header, records: bytes, at: int) -> bool:
    """Whether the control batch that begins at `at` ends its transaction without a commit."""
    try:
        for record in DefaultRecordBatch(_uncompressed(header, records, at)):
            return bool(_INT16.unpack_from(record.key or b"", 2)[0] == _ABORT)
    except (Undecodable, *_UNREADABLE):
        return False
    return False

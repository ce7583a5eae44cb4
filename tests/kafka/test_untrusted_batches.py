"""Batches of others: what they become is bounded, and what cannot be read is passed over."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from sparklag_kafka.protocol.record_batches import reading_untrusted
from tests.kafka.batches import CODECS

_MOST_BYTES = 16 * 1024 * 1024


def batch(codec: str, *values: bytes, header: str = "ce_id") -> bytes:
    builder = DefaultRecordBatchBuilder(2, CODECS[codec], 0, -1, -1, 0, 1 << 30)
    for offset, value in enumerate(values):
        assert builder.append(offset, 1, b"key", value, [(header, b"1")]) is not None
    return bytes(builder.build())


class Reading:
    def __init__(self, data: bytes) -> None:
        self.unreadable: list[tuple[int, int, str]] = []
        self.values: list[bytes] = []
        self.next_offset = 0
        with reading_untrusted(_MOST_BYTES, lambda *output: self.unreadable.append(output)):
            records: Any = fetcher.MemoryRecords(data)
        while records.has_next():
            result = records.next_batch()
            assert result.validate_crc()
            self.values += [record.value for record in result]
            self.next_offset = result.next_offset


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_small_is_read(codec: str) -> None:
    reading = Reading(batch(codec, b"one", b"two") * 2)
    assert reading.values == [b"one", b"two"] * 2
    assert not reading.unreadable


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_decompresses_to_too_much_is_skipped_in_bounded_memory(codec: str) -> None:
    data = batch(codec, b" " * (64 * 1024 * 1024), b"two")
    tracemalloc.start()
    try:
        reading = Reading(data)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert reading.values == []
    assert [output[:2] for output in reading.unreadable] == [(0, 2)]
    assert reading.next_offset == 2
    assert most < 20 * len(data) + 10_000_000


def test_a_name_that_is_no_text_ends_its_batch_and_no_other() -> None:
    # A producer that is not aiokafka's may write any bytes; Kafka does not look at them.
    broken = bytearray(batch("none", b"one", b"two", header="zyx"))
    at = broken.rindex(b"zyx")
    broken[at : at + 3] = b"\xff\xfe\xfd"
    broken[17:21] = checksum_of(broken)
    reading = Reading(bytes(broken) + batch("none", b"three", b"four"))
    assert reading.values == [b"one", b"three", b"four"]
    assert [output[:2] for output in reading.unreadable] == [(0, 2)]
    assert "utf-8" in reading.unreadable[0][2]


def test_other_consumers_of_the_process_read_as_before() -> None:
    Reading(batch("zstd", b"one"))
    records = fetcher.MemoryRecords(batch("zstd", b" " * (2 * _MOST_BYTES)))
    assert [len(record.value) for record in records.next_batch()] == [2 * _MOST_BYTES]


def checksum_of(data: bytes | bytearray) -> bytes:
    from aiokafka.record.util import calc_crc32c

    checksum: int = calc_crc32c(memoryview(data)[21:])
    return checksum.to_bytes(4, "big")

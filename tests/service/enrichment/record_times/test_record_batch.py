"""When the first record from an offset on came, by the bytes a leader gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import aiokafka.codec
import pytest

from sparklag_kafka.protocol.decompression import Undecodable, decompress
from sparklag_kafka.protocol.fetch import Aborted
from sparklag_kafka.protocol.record_batch import RecordsUnreadable, first_record_time
from tests.service.enrichment.record_times.batches import (
    CODECS,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    batch,
    marker,
)

HOUR_MS = 3_600_000


def time_of(records: bytes, position: int, *aborted: Aborted) -> int | None:
    return first_record_time(records, position, aborted).timestamp_ms


@pytest.mark.parametrize("codec", CODECS)
def test_every_record_of_every_batch_has_its_own_time(codec: str) -> None:
    times = [HOUR_MS * number for number in range(30)]
    records = b"".join(batch(at, times[at : at + 10], codec=codec) for at in (0, 10, 20))
    assert [time_of(records, at) for at in range(30)] == times
    assert time_of(records, 30) is None
    assert first_record_time(records, 30, ()).next_offset == 30


def test_times_that_go_back_within_a_batch_are_those_of_the_records() -> None:
    times = [5 * HOUR_MS, HOUR_MS, 9 * HOUR_MS, 0]
    assert [time_of(batch(7, times), at) for at in range(7, 11)] == times


def test_where_the_log_gives_the_time_all_of_a_batch_have_it() -> None:
    records = batch(3, [10, 20, 30], flags=LOG_APPEND_TIME)
    assert [time_of(records, at) for at in (3, 4, 5)] == [30, 30, 30]


def test_a_batch_the_cleaner_marked_has_its_records_times_all_the_same() -> None:
    records = batch(3, [HOUR_MS, 2 * HOUR_MS], flags=DELETE_HORIZON)
    assert [time_of(records, at) for at in (3, 4)] == [HOUR_MS, 2 * HOUR_MS]


def test_where_the_cleaner_left_a_gap_the_next_record_there_is_counts() -> None:
    first = batch(0, [10, 40, 90], offsets=[0, 4, 9], last_offset=12)
    records = first + batch(13, [130])
    said = [time_of(records, at) for at in range(14)]
    assert said == [10] + [40] * 4 + [90] * 5 + [130] * 4
    # The query may stand in a gap between batches, and a batch may be left without a record.
    assert time_of(batch(20, [200]), 14) == 200


def test_records_nobody_reads_are_passed_over() -> None:
    aborted = batch(0, [1, 2], producer_id=5, flags=TRANSACTIONAL)
    other = batch(3, [40], producer_id=6, flags=TRANSACTIONAL)
    records = aborted + marker(2, 5, commits=False) + other + marker(4, 6, commits=True)
    dead = Aborted(5, 0)
    assert [time_of(records, at, dead) for at in range(4)] == [40] * 4
    assert [time_of(records, at) for at in range(4)] == [1, 2, 40, 40], "who reads uncommitted"
    seen = first_record_time(records, 4, (dead,))
    assert (seen.timestamp_ms, seen.next_offset) == (None, 5), "only a marker is left"


def test_what_a_producer_writes_after_its_abort_counts_again() -> None:
    first = batch(0, [1], producer_id=5, flags=TRANSACTIONAL)
    second = batch(2, [30], producer_id=5, flags=TRANSACTIONAL)
    records = first + marker(1, 5, commits=False) + second + marker(3, 5, commits=True)
    assert time_of(records, 0, Aborted(5, 0)) == 30
    third = batch(4, [50], producer_id=5, flags=TRANSACTIONAL)
    both = (Aborted(5, 2), Aborted(5, 0))
    again = first + marker(1, 5, commits=False) + second + marker(3, 5, commits=False) + third
    assert time_of(again, 0, *both) == 50
    assert time_of(again, 2, *both) == 50


def test_what_is_cut_off_says_how_large_it_is_and_where_it_begins() -> None:
    first, second = batch(0, [1], value=b"x" * 100), batch(1, [2], value=b"y" * 500)
    for cut in range(len(second)):
        seen = first_record_time(first + second[:cut], 1, ())
        assert (seen.timestamp_ms, seen.next_offset) == (None, 1)
        assert seen.next_bytes == (len(second) if cut > 16 else None)
        assert seen.first_bytes == len(first)
    assert first_record_time(b"", 5, ()) == (None, 5, None, None)


def test_a_record_without_a_time_has_minus_one() -> None:
    assert time_of(batch(0, [-1]), 0) == -1


@pytest.mark.parametrize("magic", [0, 1])
def test_older_message_formats_are_refused(magic: int) -> None:
    records = bytearray(batch(0, [1]))
    records[16] = magic
    with pytest.raises(RecordsUnreadable, match="older than Kafka 0"):
        time_of(bytes(records), 0)


@pytest.mark.parametrize("seed", range(200))
def test_whatever_the_bytes_are_nothing_else_is_raised(seed: int) -> None:
    chance = random.Random(seed)
    codec = chance.choice(list(CODECS))
    flags = chance.choice([0, LOG_APPEND_TIME, DELETE_HORIZON, CONTROL])
    times = [number * HOUR_MS for number in range(20)]
    records = bytearray(batch(0, times, codec=codec, flags=flags))
    for _ in range(chance.randint(1, 5)):
        records[chance.randrange(12, len(records))] = chance.randrange(256)
    with suppress(RecordsUnreadable):
        first_record_time(bytes(records), chance.randrange(22), (Aborted(-1, 0),))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_what_becomes_too_large_is_not_taken_out(codec: str) -> None:
    large = batch(0, [0, HOUR_MS], codec=codec, value=bytes(6_000_000))
    assert len(large) < 1_000_000
    with pytest.raises(RecordsUnreadable, match="cannot be decoded"):
        time_of(large, 1)
    assert time_of(large, 0) == 0, "its header says it"
    near = batch(0, [5, 900], codec=codec, value=bytes(6_000_000))
    assert time_of(near, 1) == 5, "they are near together"
    at_log = batch(0, [5, HOUR_MS], codec=codec, value=bytes(6_000_000), flags=LOG_APPEND_TIME)
    assert time_of(at_log, 1) == HOUR_MS


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_537, 300_000, 3_000_000])
def test_what_compresses_well_comes_out_whole(codec: str, size: int) -> None:
    compress: Callable[[bytes], bytes] = getattr(aiokafka.codec, f"{codec}_encode")
    compressed = compress(bytes(size))
    assert decompress(CODECS[codec], compressed, max(size, 1)) == bytes(size)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("data", [b"", b"\x82SNAPPY\x00" + bytes(9), b"no such thing" * 9])
def test_what_was_not_compressed_is_not_decompressed(codec: int, data: bytes) -> None:
    with suppress(Undecodable):
        assert decompress(codec, data, 1_000) == b""


def test_a_codec_nobody_knows_is_named() -> None:
    with pytest.raises(Undecodable, match="codec 7"):
        decompress(7, b"", 1_000)

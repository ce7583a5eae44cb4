"""Records as a leader gives them: the request, the response, and the first record's timestamp."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import suppress
from io import BytesIO
from typing import Any

import pytest
from aiokafka.protocol.fetch import FetchResponse_v4, FetchResponse_v10, FetchResponse_v11
from aiokafka.structs import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from sparklag_kafka.brokers.logs import FetchedPartition, fetch
from sparklag_kafka.errors import RecordsUnreadable
from tests.kafka.batches import (
    CODECS,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    batch,
    last_offset,
    marker,
)

Aborted = tuple[int, int]
ORDERS = TopicPartition("orders", 0)
HOUR_MS = 3_600_000


def first_record(
    records: bytes, position: int, aborted: Iterable[Aborted] = (), *, committed: bool = False
) -> tuple[int | None, int]:
    # A leader gives no batch that ends before the position.
    while len(records) > 61 and last_offset(records) < position:
        records = records[12 + int.from_bytes(records[8:12], "big") :]
    fetched = FetchedPartition(ORDERS, 0, 100, 100, list(aborted), records)
    return fetched.first_record(position, "read_committed" if committed else "read_uncommitted")


def time_of(records: bytes, position: int, *aborted: Aborted) -> int | None:
    return first_record(records, position, aborted, committed=bool(aborted))[0]


class Answering:
    def __init__(self, response_type: Any) -> None:
        self.response_type = response_type
        self.requests: list[Any] = []

    async def send(self, request: Any) -> Any:
        version = self.response_type.API_VERSION
        self.requests.append(request.prepare({1: (4, version)}))
        records = batch(5, [1, 2])
        partitions: list[Any] = [
            (0, 0, 9, 8, 1, [(7, 3), (8, 4)], -1, records),
            (3, 29, -1, -1, -1, None, -1, b""),
        ]
        dropped = {4: {4, 6}, 10: {6}, 11: set[int]()}[version]
        some = [tuple(v for i, v in enumerate(p) if i not in dropped) for p in partitions]
        head = (0,) if version == 4 else (0, 0, 0)
        encoded = self.response_type(*head, [("orders", some)]).encode()
        return self.response_type.decode(BytesIO(encoded))


@pytest.mark.parametrize("version", [FetchResponse_v4, FetchResponse_v10, FetchResponse_v11])
async def test_each_version_of_requests_and_responses_is_understood(version: Any) -> None:
    connection: Any = Answering(version)
    fetched = await fetch(
        connection, "read_committed", {"orders": [(0, 5, 100), (3, 2**40, 200)]}, 999
    )
    assert fetched == [
        FetchedPartition(ORDERS, 0, 9, 8, [(7, 3), (8, 4)], batch(5, [1, 2])),
        FetchedPartition(TopicPartition("orders", 3), 29, -1, -1, [], b""),
    ]
    (request,) = connection.requests
    assert request.API_VERSION == version.API_VERSION
    assert (request.max_wait_time, request.min_bytes, request.max_bytes) == (0, 0, 999)
    assert request.isolation_level == 1


def test_times_that_go_back_within_a_batch_are_read_from_the_records() -> None:
    times = [5 * HOUR_MS, HOUR_MS, 9 * HOUR_MS, 0]
    assert [time_of(batch(7, times), at) for at in range(7, 11)] == times


def test_a_batch_that_the_cleaner_marked_has_the_times_of_its_records() -> None:
    records = batch(3, [HOUR_MS, 2 * HOUR_MS], flags=DELETE_HORIZON)
    assert [time_of(records, at) for at in (3, 4)] == [HOUR_MS, 2 * HOUR_MS]


def test_where_the_cleaner_left_a_gap_the_next_record_there_is_counts() -> None:
    first = batch(0, [10, 40, 90], offsets=[0, 4, 9], last_offset=12)
    records = first + batch(13, [130])
    message = [time_of(records, at) for at in range(14)]
    assert message == [10] + [40] * 4 + [90] * 5 + [130] * 4
    # The query may stand in a gap between batches, and a batch may be left without a record.
    assert time_of(batch(20, [200]), 14) == 200


def test_records_that_no_consumer_gets_are_skipped() -> None:
    aborted = batch(0, [1, 2], producer_id=5, flags=TRANSACTIONAL)
    other = batch(3, [40], producer_id=6, flags=TRANSACTIONAL)
    records = aborted + marker(2, 5, commits=False) + other + marker(4, 6, commits=True)
    dead = (5, 0)
    assert [time_of(records, at, dead) for at in range(4)] == [40] * 4
    assert [time_of(records, at) for at in range(4)] == [1, 2, 40, 40], "who reads uncommitted"
    received = first_record(records, 4, (dead,), committed=True)
    assert received == (None, 5), "only a marker is left"


def test_what_a_producer_writes_after_its_abort_counts_again() -> None:
    first = batch(0, [1], producer_id=5, flags=TRANSACTIONAL)
    second = batch(2, [30], producer_id=5, flags=TRANSACTIONAL)
    records = first + marker(1, 5, commits=False) + second + marker(3, 5, commits=True)
    assert time_of(records, 0, (5, 0)) == 30
    third = batch(4, [50], producer_id=5, flags=TRANSACTIONAL)
    both = ((5, 2), (5, 0))
    again = first + marker(1, 5, commits=False) + second + marker(3, 5, commits=False) + third
    assert time_of(again, 0, *both) == 50
    assert time_of(again, 2, *both) == 50


def test_what_is_cut_off_begins_where_the_next_fetch_does() -> None:
    first, second = batch(0, [1], value=b"x" * 100), batch(1, [2], value=b"y" * 500)
    for cut in range(len(second)):
        assert first_record(first + second[:cut], 1) == (None, 1)
    fetched = FetchedPartition(ORDERS, 0, 100, 100, [], first + second[:50])
    assert fetched.first_batch_bytes == len(first)
    assert first_record(b"", 5) == (None, 5)
    assert FetchedPartition(ORDERS, 0, 100, 100, [], b"").first_batch_bytes == 0


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_message_formats_are_refused(magic: int) -> None:
    """aiokafka's compiled parser of the older ones ends the process where they are malformed."""
    records = bytearray(batch(0, [1]))
    records[16] = magic
    for before in (b"", batch(0, [1])):
        with pytest.raises(RecordsUnreadable, match="older than Kafka 0"):
            time_of(before + bytes(records), 0)


@given(st.randoms(use_true_random=False))
def test_whatever_the_bytes_are_nothing_else_is_raised(chance: random.Random) -> None:
    codec = chance.choice(list(CODECS))
    flags = chance.choice([0, LOG_APPEND_TIME, DELETE_HORIZON, CONTROL])
    times = [number * HOUR_MS for number in range(20)]
    records = bytearray(batch(0, times, codec=codec, flags=flags))
    for _ in range(chance.randint(1, 5)):
        records[chance.randrange(12, len(records))] = chance.randrange(256)
    position = chance.randrange(22)
    for committed in (False, True):
        with suppress(RecordsUnreadable):
            first_record(bytes(records), position, [(-1, 0)], committed=committed)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_decompresses_to_too_much_is_not_decoded(codec: str) -> None:
    large = batch(0, [0, HOUR_MS], codec=codec, value=bytes(6_000_000))
    assert len(large) < 1_000_000
    with pytest.raises(RecordsUnreadable, match="cannot be decoded"):
        time_of(large, 1)
    assert time_of(large, 0) == 0, "the header has it"
    near = batch(0, [5, 900], codec=codec, value=bytes(6_000_000))
    assert time_of(near, 1) == 5, "they are near together"
    at_log = batch(0, [5, HOUR_MS], codec=codec, value=bytes(6_000_000), flags=LOG_APPEND_TIME)
    assert time_of(at_log, 1) == HOUR_MS

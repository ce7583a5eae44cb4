"""Kafka's Fetch as bytes, and one partition's way to its record."""

from __future__ import annotations

import random
from collections.abc import Iterable
from struct import Struct
from typing import Any

import pytest
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError
from aiokafka.protocol.fetch import (
    FetchRequest_v4,
    FetchRequest_v10,
    FetchResponse_v4,
    FetchResponse_v10,
)
from aiokafka.structs import TopicPartition

from sparklag_kafka.errors import ResponseUnreadable
from sparklag_kafka.protocol.fetch import Aborted, FetchAnswer, Fetched, FetchRequest
from sparklag_service.enrichment.record_times.search import FIRST_BYTES, MOST_BYTES, Search
from tests.service.enrichment.record_times.batches import TRANSACTIONAL, batch, marker

PLACES = {"orders": [(0, 5, 100), (3, 2**40, 200)], "é": [(1, 0, 300)]}
ORDERS = TopicPartition("orders", 0)


def answered(version: int) -> bytes:
    """An answer as aiokafka writes it."""
    records = batch(5, [1, 2])
    topics: list[Any] = [
        ("orders", [(0, 0, 9, 8, 1, [(7, 3), (8, 4)], records), (3, 29, -1, -1, -1, [], b"")]),
        ("é", [(1, 0, 0, 0, 0, [], b"")]),
    ]
    if version == 4:
        topics = [(name, [(*p[:4], *p[5:]) for p in some]) for name, some in topics]
        return bytes(FetchResponse_v4(0, topics).encode())
    return bytes(FetchResponse_v10(0, 0, 0, topics).encode())


@pytest.mark.parametrize("version", [4, 10])
def test_a_request_is_as_aiokafka_writes_it(version: int) -> None:
    prepared = FetchRequest("read_committed", PLACES, 999).prepare({1: (4, version)})
    assert (1, version) == (prepared.API_KEY, prepared.API_VERSION)
    if version == 4:
        stock = FetchRequest_v4(-1, 0, 0, 999, 1, list(PLACES.items()))
    else:
        topics = [
            (name, [(number, -1, offset, -1, size) for number, offset, size in some])
            for name, some in PLACES.items()
        ]
        stock = FetchRequest_v10(-1, 0, 0, 999, 1, 0, -1, topics, [])
    assert prepared.encode() == stock.encode()


@pytest.mark.parametrize("version", [4, 10])
def test_an_answer_is_read_as_aiokafka_writes_it(version: int) -> None:
    assert list(FetchAnswer(answered(version), version).read()) == [
        Fetched("orders", 0, 0, 9, 8, [Aborted(7, 3), Aborted(8, 4)], batch(5, [1, 2])),
        Fetched("orders", 3, 29, -1, -1, [], b""),
        Fetched("é", 1, 0, 0, 0, [], b""),
    ]


def test_a_broker_that_speaks_neither_version_is_refused() -> None:
    with pytest.raises(IncompatibleBrokerVersion):
        FetchRequest("read_committed", PLACES, 999).prepare({1: (0, 3)})


@pytest.mark.parametrize("version", [4, 10])
def test_cut_anywhere_it_is_refused_and_nothing_else_is_raised(version: int) -> None:
    whole = answered(version)
    for cut in range(len(whole)):
        with pytest.raises(ResponseUnreadable):
            list(FetchAnswer(whole[:cut], version).read())
    with pytest.raises(ResponseUnreadable):
        list(FetchAnswer(whole + b"\0", version).read())


@pytest.mark.parametrize("seed", range(40))
def test_whatever_the_bytes_are_nothing_else_is_raised(seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(answered(10))
    for _ in range(3):
        data[chance.randrange(len(data))] = chance.randrange(256)
    try:
        list(FetchAnswer(bytes(data), 10).read())
    except KafkaError:
        return


def test_a_refusal_of_the_whole_request_is_raised() -> None:
    data = Struct(">ihii").pack(0, 71, 0, 0)
    with pytest.raises(KafkaError):
        list(FetchAnswer(data, 10).read())


def searched(
    log: Iterable[bytes],
    position: int,
    *,
    aborted: Iterable[Aborted] = (),
    committed: bool = False,
    size: int = FIRST_BYTES,
    end: int = 100,
) -> Search:
    """A search in a log of these batches, with each broker's rule of what fits; always first or
    never is it in the request."""
    search = Search(ORDERS, "read_committed" if committed else "read_uncommitted", position, size)
    batches = list(log)
    rounds = 0
    while search.ending is None:
        rounds += 1
        assert rounds < 50
        _, offset, most = search.place
        ahead = [one for one in batches if last_of(one) >= offset]
        fits = bool(ahead) and len(ahead[0]) <= most
        records = b"".join(ahead)[:most] if fits else b""
        search.take(Fetched("orders", 0, 0, end, end, list(aborted), records))
    return search


def last_of(raw: bytes) -> int:
    (base,) = Struct(">q").unpack_from(raw, 0)
    (delta,) = Struct(">i").unpack_from(raw, 23)
    return int(base + delta)


def test_a_batch_that_does_not_fit_is_asked_for_with_more_room() -> None:
    log = [batch(0, [10], value=b"x" * 300_000), batch(1, [20])]
    search = searched(log, 0)
    assert (search.ending, search.timestamp_ms) == ("found", 10)
    assert search.batch_bytes == len(log[0])
    assert searched(log, 1).timestamp_ms == 20


def test_a_batch_that_is_too_large_is_given_up() -> None:
    search = searched([batch(0, [10], value=b"x" * MOST_BYTES)], 0)
    assert search.ending == "unusable"
    assert search.reason == f"a batch of more than {MOST_BYTES} bytes"


def test_what_nobody_reads_is_passed_over_step_by_step() -> None:
    log = []
    for number in range(20):
        some = batch(2 * number, [1], producer_id=5, flags=TRANSACTIONAL, value=b"x" * 900)
        log += [some, marker(2 * number + 1, 5, commits=False)]
    log.append(batch(40, [77]))
    aborted = [Aborted(5, 2 * number) for number in range(20)]
    search = searched(log, 0, aborted=aborted, committed=True)
    assert (search.ending, search.timestamp_ms) == ("found", 77)
    assert searched(log, 3).timestamp_ms == 1, "who reads uncommitted"


def test_more_than_it_takes_is_given_up_with_how_far_it_came() -> None:
    log = [marker(number, 5, commits=True) for number in range(90_000)]
    search = searched(log, 0, size=100, end=100_000)
    assert search.ending == "unusable"
    assert search.reason.startswith("no record up to offset ")


def test_where_there_is_only_a_marker_there_is_no_record_yet() -> None:
    assert searched([marker(4, 5, commits=True)], 4, end=5).ending == "nothing"
    assert searched([], 5, end=5).ending == "nothing"
    aborted = batch(4, [1], producer_id=5, flags=TRANSACTIONAL)
    seen = searched([aborted], 4, aborted=[Aborted(5, 4)], committed=True, end=5)
    assert seen.ending == "nothing"


@pytest.mark.parametrize(
    ("code", "ending"),
    [(1, "out of range"), (29, "forbidden"), (6, "failed"), (3, "failed"), (-1, "failed")],
)
def test_what_a_leader_refuses_ends_it(code: int, ending: str) -> None:
    search = Search(ORDERS, "read_uncommitted", 5, FIRST_BYTES)
    search.take(Fetched("orders", 0, code, -1, -1, [], b""))
    assert search.ending == ending
    assert search.reason.startswith("the leader answers ")


def test_a_record_without_a_time_is_of_no_use() -> None:
    search = searched([batch(0, [-1])], 0)
    assert (search.ending, search.reason) == ("unusable", "the record has no time")

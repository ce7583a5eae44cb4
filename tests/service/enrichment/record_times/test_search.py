"""One partition's way to the timestamp of its record."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

import pytest
from aiokafka.structs import TopicPartition

from sparklag_kafka.brokers.fetch import FetchedPartition
from sparklag_schemas import IsolationLevel
from sparklag_service.enrichment.log_end_history import LatestOffset
from sparklag_service.enrichment.record_times.lagging import Lagging
from sparklag_service.enrichment.record_times.limits import FIRST_BYTES, MAX_BYTES
from sparklag_service.enrichment.record_times.search import Search
from tests.kafka.batches import TRANSACTIONAL, batch, marker

ORDERS = TopicPartition("orders", 0)
Aborted = tuple[int, int]
T = 1_700_000_000_000


def search_at(position: int, level: IsolationLevel, size: int = FIRST_BYTES) -> Search:
    return Search(Lagging(ORDERS, level, position, LatestOffset(100, 0.0), None), size)


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
    search = search_at(position, "read_committed" if committed else "read_uncommitted", size)
    batches = list(log)
    rounds = 0
    while search.outcome is None:
        rounds += 1
        assert rounds < 50
        ahead = [one for one in batches if last_of(one) >= search.offset]
        fits = bool(ahead) and len(ahead[0]) <= search.size
        records = b"".join(ahead)[: search.size] if fits else b""
        search.take(FetchedPartition(ORDERS, 0, end, end, list(aborted), records))
    return search


def last_of(raw: bytes) -> int:
    (base,) = Struct(">q").unpack_from(raw, 0)
    (delta,) = Struct(">i").unpack_from(raw, 23)
    return int(base + delta)


def test_a_batch_that_is_too_large_is_given_up() -> None:
    search = searched([batch(0, [T + 10], value=b"x" * MAX_BYTES)], 0)
    assert search.outcome == "unusable"
    assert search.reason == f"a batch of more than {MAX_BYTES} bytes"


def test_what_nobody_reads_is_passed_over_step_by_step() -> None:
    log = []
    for number in range(20):
        some = batch(2 * number, [T + 1], producer_id=5, flags=TRANSACTIONAL, value=b"x" * 900)
        log += [some, marker(2 * number + 1, 5, commits=False)]
    log.append(batch(40, [T + 77]))
    aborted = [(5, 2 * number) for number in range(20)]
    search = searched(log, 0, aborted=aborted, committed=True)
    assert (search.outcome, search.timestamp_ms) == ("sampled", T + 77)
    assert searched(log, 3).timestamp_ms == T + 1, "who reads uncommitted"


def test_more_than_it_takes_is_given_up_with_how_far_it_came() -> None:
    log = [marker(number, 5, commits=True) for number in range(90_000)]
    search = searched(log, 0, size=100, end=100_000)
    assert search.outcome == "unusable"
    assert search.reason.startswith("no record up to offset ")


def test_where_there_is_only_a_marker_there_is_no_record_yet() -> None:
    assert searched([marker(4, 5, commits=True)], 4, end=5).outcome == "nothing_there"
    assert searched([], 5, end=5).outcome == "nothing_there"
    aborted = batch(4, [1], producer_id=5, flags=TRANSACTIONAL)
    seen = searched([aborted], 4, aborted=[(5, 4)], committed=True, end=5)
    assert seen.outcome == "nothing_there"


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(1, "out_of_range"), (29, "forbidden"), (6, "failed"), (3, "failed"), (-1, "failed")],
)
def test_what_a_leader_refuses_ends_it(code: int, outcome: str) -> None:
    search = search_at(5, "read_uncommitted")
    search.take(FetchedPartition(ORDERS, code, -1, -1, [], b""))
    assert search.outcome == outcome
    assert search.reason.startswith("the leader answers ")


def test_a_record_without_a_time_is_of_no_use() -> None:
    search = searched([batch(0, [-1])], 0)
    assert (search.outcome, search.reason) == ("unusable", "its timestamp is -1")

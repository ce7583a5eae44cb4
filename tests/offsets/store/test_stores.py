"""The contract of every store, in each kind of database."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from sparklag_offsets.store.batch_record import (
    BatchRecord,
    OffsetStore,
    Retention,
    TopicRanges,
    encode_ranges,
)
from tests.messages import OTHER_RUN, QUERY_ID
from tests.offsets.store.batches import at_ms, new_query, places, record
from tests.offsets.store.conftest import Opening

LARGEST = 2**63 - 1
NAMES = [
    "orders",
    "Orders",
    'o\'rders "x" `y` \\z',
    "100%",
    "orders_%",
    "größe 🚀 数据",
    "orders ",
    "",
    "x" * 700,
    "🚀" * 800,
]


async def test_it_is_prepared_twice_and_keeps_what_it_has(store: OffsetStore) -> None:
    await store.write([record(0)])
    await store.prepare()
    assert await store.newest([QUERY_ID]) == {QUERY_ID: record(0)}


async def test_six_prepare_it_at_once(another: Opening) -> None:
    stores = [await another(prepared=False) for _ in range(6)]
    await asyncio.gather(*(one.prepare() for one in stores))
    await stores[0].write([record(0)])
    assert await stores[5].newest([QUERY_ID]) == {QUERY_ID: record(0)}


async def test_a_store_without_tables_has_no_queries(another: Opening) -> None:
    store = await another(prepared=False)
    assert await store.queries() == []
    assert await store.queries("orders") == []


async def test_an_empty_one_has_nothing(store: OffsetStore) -> None:
    assert await store.newest([QUERY_ID]) == {}
    assert await store.newest([]) == {}
    assert await store.as_of(QUERY_ID, None) is None
    assert await store.as_of(QUERY_ID, at_ms(0)) is None
    assert await store.queries() == []
    assert await store.prune(Retention(at_ms(0), 1)) == 0


async def test_what_is_kept_is_given_back_as_it_was(store: OffsetStore) -> None:
    topics = [
        TopicRanges(0, "orders", None, None, [(0, None, 5), (7, 0, LARGEST)]),
        TopicRanges(2, "größe-🚀", "AbCdEfGhIjKlMnOpQrStUv", "a:1,b:2", [(3, 1, 2)], assigned=True),
    ]
    whole = replace(
        record(4),
        query=None,
        cluster="other",
        run_id=None,
        generation=3,
        batch_id=LARGEST,
        first_batch_id=LARGEST - 1,
        is_inferred=True,
        ranges=encode_ranges(topics),
    )
    await store.write([whole])
    (result,) = (await store.newest([QUERY_ID])).values()
    assert result == whole
    assert result.topics == topics
    assert await store.as_of(QUERY_ID, None) == whole


async def test_the_newest_is_that_of_the_last_generation(store: OffsetStore) -> None:
    back = record(3, generation=1, processed_at=at_ms(9))
    other = record(0, query_id=new_query())
    await store.write([*(record(n) for n in range(6)), back, other])
    wanted = [QUERY_ID, other.query_id, "nobody's"]
    assert await store.newest(wanted) == {QUERY_ID: back, other.query_id: other}


async def test_the_record_of_a_moment_is_the_last_that_had_completed(store: OffsetStore) -> None:
    await store.write([record(n) for n in (2, 3, 4)])

    async def batch_at(timestamp_ms: int | None) -> int | None:
        result = await store.as_of(QUERY_ID, timestamp_ms)
        return result.batch_id if result is not None else None

    assert await batch_at(at_ms(2) - 1) is None
    assert await batch_at(at_ms(2)) == 2
    assert await batch_at(at_ms(3) - 1) == 2
    assert await batch_at(at_ms(3)) == 3
    assert await batch_at(at_ms(99)) == 4
    assert await batch_at(None) == 4


async def test_the_later_of_several_that_completed_at_once_is_returned(store: OffsetStore) -> None:
    same = [
        record(5, processed_at=at_ms(5)),
        record(6, processed_at=at_ms(5)),
        record(2, generation=1, processed_at=at_ms(5)),
    ]
    await store.write(same)
    assert await store.as_of(QUERY_ID, at_ms(5)) == same[-1]
    assert await store.as_of(QUERY_ID, at_ms(5) - 1) is None


async def test_queries_are_selected_by_id_and_by_their_exact_name(store: OffsetStore) -> None:
    named = {name: record(0, query_id=new_query(), query=name) for name in NAMES}
    unnamed = record(0, query_id=new_query(), query=None)
    await store.write([*named.values(), unnamed])
    for name, kept in named.items():
        assert [one.query_id for one in await store.queries(name)] == [kept.query_id], name[:20]
        assert [one.query_id for one in await store.queries(kept.query_id)] == [kept.query_id]
    assert [one.query for one in await store.queries(unnamed.query_id)] == [None]
    assert await store.queries("order") == []
    assert await store.queries("ORDERS") == []
    assert await store.queries("%") == []
    assert len(await store.queries()) == len(NAMES) + 1


async def test_queries_come_by_name_with_their_first_and_last_moment(store: OffsetStore) -> None:
    one, two, other = "a" + new_query(), "b" + new_query(), new_query()
    await store.write(
        [
            *(record(n, query_id=two) for n in (3, 4)),
            *(record(n, query_id=one) for n in (0, 1, 2)),
            record(9, query_id=other, query="clicks"),
        ]
    )
    assert [tuple(result) for result in await store.queries()] == [
        (other, "clicks", at_ms(9), at_ms(9)),
        (one, "orders", at_ms(0), at_ms(2)),
        (two, "orders", at_ms(3), at_ms(4)),
    ]


async def test_an_id_is_taken_before_a_name(store: OffsetStore) -> None:
    await store.write([record(0), record(0, query_id=new_query(), query=QUERY_ID)])
    assert [one.query_id for one in await store.queries(QUERY_ID)] == [QUERY_ID]


async def test_a_renamed_query_goes_by_its_new_name(another: Opening) -> None:
    store, other = await another(), await another()
    await store.write([record(0)])
    await store.write([record(1, query="payments")])
    assert await store.queries("orders") == []
    # Who did not hear of it calls it as before.
    await other.write([record(2)])
    await other.write([record(3, query="payments")])
    assert [one.query_id for one in await store.queries("payments")] == [QUERY_ID]
    assert [one.query for one in (await store.newest([QUERY_ID])).values()] == ["payments"]


async def test_what_is_kept_twice_is_there_once_and_as_it_was_first(store: OffsetStore) -> None:
    await store.write([record(0), record(1)])
    otherwise = record(1, run_id=OTHER_RUN, ranges=encode_ranges([]), processed_at=at_ms(8))
    await store.write([record(0), otherwise, record(2)])
    assert await places(store) == [(0, 0), (0, 1), (0, 2)]
    assert await store.as_of(QUERY_ID, at_ms(1)) == record(1)


async def test_two_write_the_same_records_at_once(another: Opening) -> None:
    stores = [await another() for _ in range(2)]
    query_ids = [new_query() for _ in range(40)]
    for one in stores:
        await one.write([record(0, query_id=query_id) for query_id in query_ids])
    # In opposite orders of queries, where locks would cross.
    await asyncio.gather(
        stores[0].write([record(n, query_id=q) for n in (1, 2) for q in query_ids]),
        stores[1].write([record(n, query_id=q) for n in (1, 2) for q in reversed(query_ids)]),
    )
    for query_id in query_ids[::13]:
        assert await places(stores[0], query_id) == [(0, n) for n in range(3)]


async def test_two_write_to_the_same_queries_for_a_while(another: Opening) -> None:
    stores = [await another() for _ in range(2)]

    async def write(store: OffsetStore) -> None:
        for n in range(20):
            await store.write([record(n), record(n, query_id="other", query=f"name-{n}")])

    await asyncio.gather(*map(write, stores))
    assert await places(stores[0]) == [(0, n) for n in range(20)]


async def test_batches_of_two_thousand_partitions(store: OffsetStore) -> None:
    whole = wide(0), wide(1)
    await store.write(whole)
    assert await store.newest([QUERY_ID]) == {QUERY_ID: whole[1]}
    assert len(whole[1].topics[0].ranges) == 2_000


async def test_records_are_pruned_by_age_except_the_last(store: OffsetStore) -> None:
    await store.write([record(n) for n in range(5)])
    assert await store.prune(Retention(before_ms=at_ms(3))) == 3
    assert await places(store) == [(0, 3), (0, 4)]
    assert await store.prune(Retention(before_ms=at_ms(99))) == 1
    assert await places(store) == [(0, 4)]


async def test_the_last_records_are_kept_by_count_across_generations(store: OffsetStore) -> None:
    back = [record(n, generation=1, processed_at=at_ms(10 + n)) for n in (1, 2)]
    await store.write([*(record(n) for n in range(5)), *back])
    assert await store.prune(Retention(keep_batches=3)) == 4
    assert await places(store) == [(0, 4), (1, 1), (1, 2)]
    assert await store.prune(Retention(keep_batches=3)) == 0


async def test_records_beyond_either_limit_are_pruned(store: OffsetStore) -> None:
    await store.write([record(n) for n in range(6)])
    assert await store.prune(Retention(before_ms=at_ms(1), keep_batches=4)) == 2
    assert await store.prune(Retention(before_ms=at_ms(4), keep_batches=4)) == 2
    assert await places(store) == [(0, 4), (0, 5)]


async def test_each_query_is_pruned_for_itself(store: OffsetStore) -> None:
    other = new_query()
    await store.write([*(record(n) for n in range(3)), record(0, query_id=other)])
    assert await store.prune(Retention(before_ms=at_ms(99), keep_batches=1)) == 2
    assert await places(store) == [(0, 2)]
    assert await places(store, other) == [(0, 0)]


async def test_an_empty_store_prunes_nothing(store: OffsetStore) -> None:
    await store.write([record(n) for n in range(3)])
    for retention in (Retention(), Retention(at_ms(0), 3), Retention(0)):
        assert await store.prune(retention) == 0
    assert await places(store) == [(0, 0), (0, 1), (0, 2)]


def wide(batch_id: int) -> BatchRecord:
    ranges = [(n, LARGEST - 10 + batch_id, LARGEST - 9 + batch_id) for n in range(2_000)]
    return record(batch_id, ranges=encode_ranges([TopicRanges(0, "orders", None, None, [*ranges])]))

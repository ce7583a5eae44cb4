"""The query that a name means, and the batch that a time means."""

from __future__ import annotations

import pytest

from sparklag_offsets.errors import AmbiguousQuery, BeforeFirstBatch, UnknownQuery
from sparklag_offsets.restore.restoration import find_record
from sparklag_offsets.store.batch_record import BatchRecord, OffsetStore
from tests.messages import QUERY_ID
from tests.offsets.store.batches import at_ms, record

OTHER_ID = "ee8b09d1-0000-4000-8000-000000000002"
FIRST_AT = "2026-09-21T14:13:20.000+00:00"


def later(batch_id: int, at: int) -> BatchRecord:
    return record(batch_id, query_id=OTHER_ID, processed_at=at_ms(at))


async def test_a_query_is_selected_by_name_and_by_id(sqlite_store: OffsetStore) -> None:
    await sqlite_store.write([record(0), record(1), record(2)])
    for requested in ("orders", QUERY_ID, QUERY_ID[:4]):
        assert (await find_record(sqlite_store, requested, None)).batch_id == 2
        assert (await find_record(sqlite_store, requested, at_ms(1))).batch_id == 1


async def test_the_beginning_of_several_ids_lists_them(sqlite_store: OffsetStore) -> None:
    others = ["dd8b7777", "dd8bffff"]
    await sqlite_store.write([record(0), *(record(0, query_id=other) for other in others)])
    with pytest.raises(AmbiguousQuery) as raised:
        await find_record(sqlite_store, "dd8b", None)
    assert raised.value.query_ids == [QUERY_ID, *others]
    assert (await find_record(sqlite_store, "dd8b7", None)).query_id == "dd8b7777"
    with pytest.raises(UnknownQuery):
        await find_record(sqlite_store, "dd8", None)


async def test_an_unrecorded_query_is_reported_with_the_store(sqlite_store: OffsetStore) -> None:
    with pytest.raises(UnknownQuery) as raised:
        await find_record(sqlite_store, "Orders", None)
    assert str(raised.value) == f"query 'Orders' is not in the offset store {sqlite_store.shown}"


async def test_a_time_before_the_first_batch_names_that_batch(sqlite_store: OffsetStore) -> None:
    await sqlite_store.write([record(0), later(0, 9)])
    with pytest.raises(BeforeFirstBatch) as raised:
        await find_record(sqlite_store, "orders", at_ms(0) - 1)
    assert str(raised.value) == (
        f"query orders: the first recorded batch completed at {FIRST_AT}, after"
        " 2026-09-21T14:13:19.999+00:00"
    )
    with pytest.raises(BeforeFirstBatch, match="14:13:29"):
        await find_record(sqlite_store, OTHER_ID, at_ms(5))


async def test_the_query_of_that_time_is_chosen_of_two(sqlite_store: OffsetStore) -> None:
    await sqlite_store.write([record(0), record(1), later(0, 5), later(1, 6)])

    async def result(at: int | None) -> tuple[str, int]:
        kept = await find_record(sqlite_store, "orders", at_ms(at) if at is not None else None)
        return kept.query_id, kept.batch_id

    assert await result(None) == (OTHER_ID, 1)
    assert await result(6) == (OTHER_ID, 1)
    assert await result(5) == (OTHER_ID, 0)
    # Between the two lives.
    assert await result(4) == (QUERY_ID, 1)
    assert await result(0) == (QUERY_ID, 0)


async def test_two_queries_of_that_name_at_one_time_are_listed(sqlite_store: OffsetStore) -> None:
    await sqlite_store.write([record(0), record(1), record(7), later(0, 5), later(1, 6)])
    for at in (None, at_ms(7)):
        with pytest.raises(AmbiguousQuery) as raised:
            await find_record(sqlite_store, "orders", at)
        assert raised.value.query_ids == [QUERY_ID, OTHER_ID]
        assert str(raised.value) == (
            "2 queries have the name 'orders' at the same time: ask for one of them by its id"
            f" ({QUERY_ID}, {OTHER_ID})"
        )
    # By id it is clear, and so it was before the first went on.
    assert (await find_record(sqlite_store, QUERY_ID, None)).batch_id == 7
    assert (await find_record(sqlite_store, "orders", at_ms(6))).query_id == OTHER_ID
    assert (await find_record(sqlite_store, "orders", at_ms(4))).query_id == QUERY_ID

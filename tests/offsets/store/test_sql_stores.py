"""Stores in SQL databases: users read their tables too."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from sparklag_offsets.errors import NewerSchema, StoreError
from sparklag_offsets.store.batch_record import OffsetStore, TopicRanges, encode_ranges
from sparklag_schemas.text.locations import shown_url
from tests.messages import QUERY_ID, RUN_ID
from tests.offsets.conftest import open_until_end
from tests.offsets.store.batches import at_ms, record
from tests.offsets.store.sql_client import rows, run

LARGEST = 2**63 - 1


@pytest.fixture
def store(sql_url: str, opened: AsyncExitStack) -> OffsetStore:
    return open_until_end(sql_url, opened, create=True)


async def test_the_view_shows_every_range_as_a_row(sql_url: str, store: OffsetStore) -> None:
    topics = [
        TopicRanges(0, "Orders", "AbCdEfGhIjKlMnOpQrStUv", "b:9092", [(0, 10, LARGEST)]),
        TopicRanges(1, "clicks-🚀", None, None, [(0, None, 7), (1, 0, 0)], assigned=True),
    ]
    kept = record(4, generation=2, first_batch_id=3, is_inferred=True, ranges=encode_ranges(topics))
    await store.prepare()
    await store.write([kept])
    result = rows(
        sql_url,
        "SELECT query_id, query, run_id, generation, first_batch_id, batch_id, processed_at,"
        " is_inferred, source, topic, topic_id, partition_id, from_offset, until_offset"
        " FROM sparklag_ranges ORDER BY source, partition_id",
    )
    batch = (QUERY_ID, "orders", RUN_ID, 2, 3, 4, at_ms(4), True)
    assert result == [
        (*batch, 0, "Orders", "AbCdEfGhIjKlMnOpQrStUv", 0, 10, LARGEST),
        (*batch, 1, "clicks-🚀", None, 0, None, 7),
        (*batch, 1, "clicks-🚀", None, 1, 0, 0),
    ]


async def test_a_newer_schema_is_refused_in_one_line(sql_url: str, store: OffsetStore) -> None:
    await store.prepare()
    await store.write([record(0)])
    run(sql_url, "UPDATE sparklag_schema_version SET version_num = '0999'")
    for refused in (store.prepare(), store.queries(), store.queries("orders")):
        with pytest.raises(NewerSchema) as raised:
            await refused
        assert str(raised.value) == (
            f"the offset store at {shown_url(sql_url)} has schema 0999, and this sparklag knows"
            " those up to 0001: a newer sparklag made it, upgrade this one"
        )


async def test_other_alembic_tables_are_left_alone(sql_url: str, store: OffsetStore) -> None:
    run(
        sql_url,
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)",
        "INSERT INTO alembic_version VALUES ('theirs')",
    )
    await store.prepare()
    await store.write([record(0)])
    await store.prepare()
    assert rows(sql_url, "SELECT version_num FROM alembic_version") == [("theirs",)]
    assert rows(sql_url, "SELECT version_num FROM sparklag_schema_version") == [("0001",)]
    assert await store.newest([QUERY_ID]) == {QUERY_ID: record(0)}


@pytest.mark.packaging
@pytest.mark.parametrize("sql_url", ["mariadb"], indirect=True)
@pytest.mark.parametrize(
    "undone",
    [
        ["DROP VIEW sparklag_ranges"],
        ["DROP VIEW sparklag_ranges", "DROP INDEX sparklag_batches_by_time ON sparklag_batches"],
        ["DROP VIEW sparklag_ranges", "DROP TABLE sparklag_batches"],
        [],
    ],
    ids=["no view", "no index", "no batches", "no version"],
)
async def test_tables_whose_maker_was_killed_are_made_whole(
    sql_url: str, store: OffsetStore, undone: list[str]
) -> None:
    # Of MySQL every CREATE is a transaction of its own.
    await store.prepare()
    whole = rows(sql_url, "SHOW CREATE TABLE sparklag_batches")
    run(sql_url, *undone, "DELETE FROM sparklag_schema_version")
    await store.prepare()
    await store.write([record(0)])
    assert rows(sql_url, "SELECT until_offset FROM sparklag_ranges") == [(10,)]
    assert rows(sql_url, "SHOW CREATE TABLE sparklag_batches") == whole


async def test_broken_ranges_are_reported_in_one_line(sql_url: str, store: OffsetStore) -> None:
    await store.prepare()
    await store.write([record(3)])
    run(sql_url, "DROP VIEW sparklag_ranges", "UPDATE sparklag_batches SET ranges = '[7]'")
    (result,) = (await store.newest([QUERY_ID])).values()
    with pytest.raises(StoreError, match=f"query {QUERY_ID}, batch 3, are broken") as raised:
        result.end_offsets()
    assert "\n" not in str(raised.value)


async def test_the_newest_of_more_queries_than_go_into_one_statement(store: OffsetStore) -> None:
    await store.prepare()
    many = [record(0, query_id=f"query-{n}", query=f"name-{n}") for n in range(1_100)]
    await store.write(many)
    result = await store.newest([one.query_id for one in many])
    assert len(result) == 1_100
    assert result["query-1099"] == many[-1]

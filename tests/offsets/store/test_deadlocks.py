"""Two that wait for each other: a database undoes what one of them has done."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from sparklag_offsets.errors import StoreAway
from sparklag_offsets.store.batch_record import OffsetStore
from sparklag_offsets.store.sql import sql_store
from tests.offsets.conftest import open_until_end
from tests.offsets.store.batches import record
from tests.offsets.store.conftest import empty_database
from tests.offsets.store.sql_client import connected, rows, run
from tests.waiting import holds

WAITING = {
    "postgresql": "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
    "mariadb": "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
}

pytestmark = pytest.mark.packaging


@pytest.fixture(params=list(WAITING))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty_database(request, tmp_path)


@pytest.fixture
async def store(url: str, opened: AsyncExitStack) -> OffsetStore:
    if url.startswith("postgresql"):
        # Who is undone is who has waited for so long first.
        database = url.rpartition("/")[2]
        run(url, f"ALTER DATABASE {database} SET deadlock_timeout = '5s'")
    store = open_until_end(url, opened)
    await store.prepare()
    await store.write([record(0, query_id=query_id) for query_id in ("first", "last")])
    return store


@pytest.fixture
def other(url: str, store: OffsetStore) -> Iterator[Connection]:
    """Another, with so much to undo that MariaDB does not choose it."""
    run(url, "CREATE TABLE ballast (number INTEGER)")
    with connected(url) as other:
        if url.startswith("postgresql"):
            other.execute(text("SET LOCAL deadlock_timeout = '10min'"))
        other.execute(text("INSERT INTO ballast VALUES " + ", ".join(["(1)"] * 1_000)))
        yield other


async def collide(url: str, store: OffsetStore, other: Connection) -> asyncio.Task[None]:
    """The store, undone once while it writes; `other` holds what it waits for, until it commits."""
    touch = "UPDATE sparklag_queries SET cluster = 'elsewhere' WHERE query_id = '{}'"
    other.execute(text(touch.format("last")))
    renamed = [record(1, query_id=query_id, query="renamed") for query_id in ("first", "last")]
    keeping = asyncio.create_task(store.write(renamed))
    await holds(lambda: bool(rows(url, WAITING[url.partition(":")[0]])), "the store waits")
    # It gets what the store holds: only because the store was undone.
    await asyncio.to_thread(other.execute, text(touch.format("first")))
    return keeping


async def test_it_writes_again(url: str, store: OffsetStore, other: Connection) -> None:
    keeping = await collide(url, store, other)
    other.commit()
    await keeping
    newest = await store.newest(["first", "last"])
    assert {
        query_id: (result.generation, result.batch_id) for query_id, result in newest.items()
    } == {
        "first": (0, 1),
        "last": (0, 1),
    }
    assert [query.query for query in await store.queries("renamed")] == ["renamed"] * 2


async def test_not_for_ever(
    url: str, store: OffsetStore, other: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_store, "_ATTEMPTS", 1)
    keeping = await collide(url, store, other)
    with pytest.raises(StoreAway, match=r"(?i)deadlock"):
        await keeping

"""The offset store in an SQL database, through SQLAlchemy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from async_timeout import timeout
from sqlalchemy import ColumnElement, and_, delete, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from sparklag_offsets.errors import Deadlock, StoreError
from sparklag_offsets.store.batch_record import BatchRecord, RecordedQuery, Retention
from sparklag_offsets.store.sql import database
from sparklag_offsets.store.sql.database import (
    MAX_NAME,
    NEWEST_FIRST,
    RECORDS,
    batch_values,
    batches,
    errors_translated,
    insert_new,
    insert_or_rename,
    make_engine,
    queries,
    query_values,
)
from sparklag_schemas.runtime.queue import by_count, by_size
from sparklag_schemas.text.locations import shown_url

_TIMEOUT_S: Final = 30.0
"""The limit of one call."""
_CLOSE_S: Final = 2.0
_STATEMENT_QUERIES: Final = 500
_STATEMENT_CHARS: Final = 1_000_000
"""The size of ranges in one statement."""
_NO_KEY: Final = (None, object())
_LOCK_RETRY_S: Final = 0.05
_ATTEMPTS: Final = 5


class SqlStore:
    """See OffsetStore. For one event loop."""

    def __init__(self, url: str, *, create: bool) -> None:
        self.shown = shown_url(url)
        self._engine = make_engine(url, self.shown, create=create)
        self._keys: dict[str, tuple[int, str | None]] = {}
        """Key and name of the stored queries, by id."""

    async def prepare(self) -> None:
        async with self._transaction() as connection:
            if await connection.run_sync(database.is_newest, self.shown):
                return
        async with _upgrade_lock(), self._transaction() as connection:
            await connection.run_sync(database.upgrade, self.shown)

    async def newest(self, query_ids: Collection[str]) -> dict[str, BatchRecord]:
        other = batches.alias()
        of_query = select(other).where(other.c.query_key == queries.c.query_key)
        last = of_query.order_by(other.c.generation.desc(), other.c.batch_id.desc()).limit(1)
        # Two comparisons: for a pair of columns databases scan all rows of the query.
        is_last = [
            batches.c[name] == last.with_only_columns(other.c[name]).scalar_subquery()
            for name in ("generation", "batch_id")
        ]
        records = {}
        async with self._transaction() as connection:
            for chunk in by_count(query_ids, _STATEMENT_QUERIES):
                statement = RECORDS.where(queries.c.query_id.in_(chunk), *is_last)
                for row in await connection.execute(statement):
                    records[row.query_id] = BatchRecord(**row._mapping)
        return records

    async def write(self, records: Sequence[BatchRecord]) -> None:
        # Sorted writes may deadlock all the same: MySQL locks gaps between rows too.
        for _ in range(_ATTEMPTS - 1):
            with suppress(Deadlock):
                await self._write(records)
                return
        await self._write(records)

    async def _write(self, records: Sequence[BatchRecord]) -> None:
        try:
            async with self._transaction() as connection:
                await self._write_queries(connection, records)
                # Sorted, against deadlocks.
                ordered = sorted(records, key=lambda r: (r.query_id, r.generation, r.batch_id))
                for chunk in by_size(ordered, lambda record: len(record.ranges), _STATEMENT_CHARS):
                    rows = [
                        batch_values(record, self._keys[record.query_id][0]) for record in chunk
                    ]
                    await connection.execute(*insert_new(connection.dialect.name, rows))
        except BaseException:
            # The rows of the queries may have been rolled back.
            for record in records:
                self._keys.pop(record.query_id, None)
            raise

    async def as_of(self, query_id: str, at_ms: int | None) -> BatchRecord | None:
        # A join by the id would make PostgreSQL sort all rows of the query.
        key = select(queries.c.query_key).where(queries.c.query_id == query_id).scalar_subquery()
        statement = RECORDS.where(batches.c.query_key == key).limit(1)
        if at_ms is None:
            statement = statement.order_by(*NEWEST_FIRST)
        else:
            statement = statement.where(batches.c.processed_at <= at_ms)
            statement = statement.order_by(batches.c.processed_at.desc(), *NEWEST_FIRST)
        async with self._transaction() as connection:
            row = (await connection.execute(statement)).first()
        return BatchRecord(**row._mapping) if row is not None else None

    async def queries(self, name_or_id: str | None = None) -> list[RecordedQuery]:
        async with self._transaction() as connection:
            if not await connection.run_sync(database.is_newest, self.shown):
                return []
            if name_or_id is None:
                return await self._list_queries(connection, None)
            # Compared again here: MySQL ignores trailing blanks.
            with_id = await self._list_queries(connection, queries.c.query_id == name_or_id)
            with_id = [query for query in with_id if query.query_id == name_or_id]
            if with_id:
                return with_id
            name = name_or_id[:MAX_NAME]
            with_name = await self._list_queries(connection, queries.c.name == name)
            return [query for query in with_name if query.query == name]

    async def prune(self, retention: Retention) -> int:
        deleted = 0
        async with self._transaction() as connection:
            keys = (await connection.execute(select(queries.c.query_key))).scalars().all()
        for key in keys:
            # One transaction for each: other writers do not wait for long.
            async with self._transaction() as connection:
                deleted += await self._prune(connection, key, retention)
        return deleted

    async def aclose(self) -> None:
        with suppress(StoreError), errors_translated(self.shown):
            await asyncio.wait_for(self._engine.dispose(), _CLOSE_S)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncConnection]:
        with errors_translated(self.shown):
            async with timeout(_TIMEOUT_S), self._engine.begin() as connection:
                yield connection

    async def _list_queries(
        self, connection: AsyncConnection, condition: ColumnElement[bool] | None
    ) -> list[RecordedQuery]:
        of_query = batches.c.query_key == queries.c.query_key
        # Not `min` and `max`: for those MariaDB reads all rows of the query.
        at = select(batches.c.processed_at).where(of_query).limit(1)
        first = at.order_by(batches.c.processed_at).scalar_subquery()
        last = at.order_by(batches.c.processed_at.desc()).scalar_subquery()
        statement = select(queries.c.query_id, queries.c.name, first, last)
        if condition is not None:
            statement = statement.where(condition)
        rows = await connection.execute(statement)
        listed = [RecordedQuery(*row) for row in rows if row[2] is not None]
        # Sorted here: each database has its own collation.
        return sorted(listed, key=lambda query: (query.query or "", query.query_id))

    async def _write_queries(
        self, connection: AsyncConnection, records: Sequence[BatchRecord]
    ) -> None:
        """Insert or rename the queries of these records, and cache their keys."""
        changed = {}
        for record in records:
            if self._keys.get(record.query_id, _NO_KEY)[1] != record.query:
                changed[record.query_id] = query_values(record)
        if not changed:
            return
        # Sorted, against deadlocks with another writer of the same queries.
        rows = [changed[query_id] for query_id in sorted(changed)]
        await connection.execute(insert_or_rename(connection.dialect.name), rows)
        names = {record.query_id: record.query for record in records}
        for chunk in by_count(changed, _STATEMENT_QUERIES):
            statement = select(queries.c.query_id, queries.c.query_key)
            statement = statement.where(queries.c.query_id.in_(chunk))
            for query_id, key in await connection.execute(statement):
                self._keys[query_id] = key, names[query_id]

    async def _prune(self, connection: AsyncConnection, key: int, retention: Retention) -> int:
        of_query = batches.c.query_key == key
        batch_keys = (
            select(batches.c.generation, batches.c.batch_id).where(of_query).order_by(*NEWEST_FIRST)
        )
        last = (await connection.execute(batch_keys.limit(1))).first()
        if last is None:
            return 0
        old: list[ColumnElement[bool]] = []
        if retention.before_ms is not None:
            old.append(batches.c.processed_at < retention.before_ms)
        if retention.keep_batches is not None:
            statement = batch_keys.limit(1).offset(retention.keep_batches)
            newest_excess = (await connection.execute(statement)).first()
            if newest_excess is not None:
                generation, batch_id = newest_excess
                old.append(_before(generation, batch_id + 1))
        if not old:
            return 0
        done = await connection.execute(delete(batches).where(of_query, or_(*old), _before(*last)))
        return int(done.rowcount)


def _before(generation: int, batch_id: int) -> ColumnElement[bool]:
    earlier = and_(batches.c.generation == generation, batches.c.batch_id < batch_id)
    return or_(batches.c.generation < generation, earlier)


@asynccontextmanager
async def _upgrade_lock() -> AsyncIterator[None]:
    """Other stores of this process may be on this loop, or on another."""
    while not database.UPGRADING.acquire(blocking=False):  # noqa: ASYNC110 - no event has both
        await asyncio.sleep(_LOCK_RETRY_S)
    try:
        yield
    finally:
        database.UPGRADING.release()

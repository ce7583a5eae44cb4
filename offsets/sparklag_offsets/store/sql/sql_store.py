"""The offset store in an SQL database, through SQLAlchemy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from sqlalchemy import ColumnElement, and_, delete, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from sparklag_offsets.errors import Deadlock
from sparklag_offsets.store.batch_record import BatchRecord, KeptQuery
from sparklag_offsets.store.offset_store import Retention
from sparklag_offsets.store.sql import schema
from sparklag_offsets.store.sql.deadline import Lines, deadline
from sparklag_offsets.store.sql.engine import make_engine
from sparklag_offsets.store.sql.failures import explained
from sparklag_offsets.store.sql.rows import batch_values, query_values, record_of, select_records
from sparklag_offsets.store.sql.tables import LONGEST_NAME, batches, queries
from sparklag_offsets.store.sql.upserts import insert_new, insert_or_rename
from sparklag_schemas.redaction import shown_url
from sparklag_schemas.runtime.chunks import by_count, by_size

_TIMEOUT_S: Final = 30.0
"""Of one call."""
_CLOSE_S: Final = 2.0
_QUERIES: Final = 500
"""In one statement."""
_LETTERS: Final = 1_000_000
"""Of ranges, in one statement."""
_AGAIN_S: Final = 0.05
_ATTEMPTS: Final = 5


class SqlStore:
    """See OffsetStore. For one event loop."""

    def __init__(self, url: str, *, create: bool) -> None:
        self.shown = shown_url(url)
        self._engine = make_engine(url, self.shown, create=create)
        self._lines = Lines(self._engine)
        self._keys: dict[str, tuple[int, str | None]] = {}
        """Of queries that are in their table already: key and name."""

    async def prepare(self) -> None:
        async with self._connection() as connection:
            if await connection.run_sync(schema.is_newest, self.shown):
                return
        async with _upgrading(), self._connection() as connection:
            await connection.run_sync(schema.upgrade, self.shown)

    async def newest(self, query_ids: Collection[str]) -> dict[str, BatchRecord]:
        other = batches.alias()
        last_first = (other.c.generation.desc(), other.c.batch_id.desc())
        of_query = other.c.query_key == queries.c.query_key
        # Each compared by itself: a pair of them is looked for in all rows of the query.
        is_last = [
            batches.c[name]
            == select(other.c[name])
            .where(of_query)
            .order_by(*last_first)
            .limit(1)
            .scalar_subquery()
            for name in ("generation", "batch_id")
        ]
        found = {}
        async with self._connection() as connection:
            for some in by_count(query_ids, _QUERIES):
                wanted = select_records().where(queries.c.query_id.in_(some), *is_last)
                for row in await connection.execute(wanted):
                    found[row.query_id] = record_of(row)
        return found

    async def keep(self, records: Sequence[BatchRecord]) -> None:
        # Who writes in one order may still be undone: MySQL locks what lies between rows too.
        for _ in range(_ATTEMPTS - 1):
            with suppress(Deadlock):
                await self._keep(records)
                return
        await self._keep(records)

    async def _keep(self, records: Sequence[BatchRecord]) -> None:
        try:
            async with self._connection() as connection:
                await self._keep_queries(connection, records)
                # In one order too.
                ordered = sorted(records, key=lambda record: (record.query_id, record.place))
                for some in by_size(ordered, lambda record: len(record.ranges), _LETTERS):
                    rows = [batch_values(record, self._keys[record.query_id][0]) for record in some]
                    await connection.execute(*insert_new(connection.dialect.name, rows))
        except BaseException:
            # Their keys may have gone with the transaction.
            for record in records:
                self._keys.pop(record.query_id, None)
            raise

    async def as_of(self, query_id: str, at_ms: int | None) -> BatchRecord | None:
        # Joined by its id, PostgreSQL would sort all that there is of the query.
        key = select(queries.c.query_key).where(queries.c.query_id == query_id).scalar_subquery()
        wanted = select_records().where(batches.c.query_key == key).limit(1)
        by_place = (batches.c.generation.desc(), batches.c.batch_id.desc())
        if at_ms is None:
            wanted = wanted.order_by(*by_place)
        else:
            wanted = wanted.where(batches.c.processed_at <= at_ms)
            wanted = wanted.order_by(batches.c.processed_at.desc(), *by_place)
        async with self._connection() as connection:
            row = (await connection.execute(wanted)).first()
        return record_of(row) if row is not None else None

    async def queries(self, name_or_id: str | None = None) -> list[KeptQuery]:
        async with self._connection() as connection:
            if not await connection.run_sync(schema.is_newest, self.shown):
                return []
            if name_or_id is not None:
                # For MySQL blanks at the end are nothing.
                found = await self._listed(connection, queries.c.query_id == name_or_id)
                found = [one for one in found if one.query_id == name_or_id]
                name = name_or_id[:LONGEST_NAME]
                named = found or await self._listed(connection, queries.c.name == name)
                return found or [one for one in named if one.query == name]
            return await self._listed(connection, None)

    async def prune(self, retention: Retention) -> int:
        deleted = 0
        async with self._connection() as connection:
            keys = (await connection.execute(select(queries.c.query_key))).scalars().all()
        for key in keys:
            # Each in a transaction of its own: nobody waits for long.
            async with self._connection() as connection:
                deleted += await self._prune(connection, key, retention)
        return deleted

    async def aclose(self) -> None:
        with explained(self.shown):
            await asyncio.wait_for(self._engine.dispose(), _CLOSE_S)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection]:
        """In a transaction."""
        with explained(self.shown):
            async with (
                deadline(_TIMEOUT_S, self._lines.hang_up),
                self._engine.begin() as connection,
            ):
                yield connection

    async def _listed(
        self, connection: AsyncConnection, condition: ColumnElement[bool] | None
    ) -> list[KeptQuery]:
        of_query = batches.c.query_key == queries.c.query_key
        # For `min` and `max` MariaDB reads all that there is of the query.
        one = select(batches.c.processed_at).where(of_query).limit(1)
        first = one.order_by(batches.c.processed_at).scalar_subquery()
        last = one.order_by(batches.c.processed_at.desc()).scalar_subquery()
        wanted = select(queries.c.query_id, queries.c.name, first, last)
        if condition is not None:
            wanted = wanted.where(condition)
        rows = await connection.execute(wanted)
        found = [KeptQuery(*row) for row in rows if row[2] is not None]
        # Each database has an order of its own.
        return sorted(found, key=lambda one: (one.query or "", one.query_id))

    async def _keep_queries(
        self, connection: AsyncConnection, records: Sequence[BatchRecord]
    ) -> None:
        """See to it that each has its row, with the name that it has now."""
        new = {}
        for record in records:
            known = self._keys.get(record.query_id)
            if known is None or known[1] != record.query:
                new[record.query_id] = query_values(record.query_id, record.query, record.cluster)
        if not new:
            return
        # In one order, so that two that write the same queries do not wait for each other.
        rows = [new[query_id] for query_id in sorted(new)]
        await connection.execute(insert_or_rename(connection.dialect.name), rows)
        for some in by_count(new, _QUERIES):
            wanted = select(queries.c.query_id, queries.c.query_key)
            found = await connection.execute(wanted.where(queries.c.query_id.in_(some)))
            names = {record.query_id: record.query for record in records}
            for query_id, key in found:
                self._keys[query_id] = key, names[query_id]

    async def _prune(self, connection: AsyncConnection, key: int, retention: Retention) -> int:
        mine = batches.c.query_key == key
        places = (
            select(batches.c.generation, batches.c.batch_id)
            .where(mine)
            .order_by(batches.c.generation.desc(), batches.c.batch_id.desc())
        )
        last = (await connection.execute(places.limit(1))).first()
        if last is None:
            return 0
        old: list[ColumnElement[bool]] = []
        if retention.before_ms is not None:
            old.append(batches.c.processed_at < retention.before_ms)
        if retention.keep_batches is not None:
            after = places.limit(1).offset(retention.keep_batches)
            too_many = (await connection.execute(after)).first()
            if too_many is not None:
                old.append(or_(_before(*too_many), _at(*too_many)))
        if not old:
            return 0
        done = await connection.execute(delete(batches).where(mine, or_(*old), _before(*last)))
        return int(done.rowcount)


def _before(generation: int, batch_id: int) -> ColumnElement[bool]:
    earlier = and_(batches.c.generation == generation, batches.c.batch_id < batch_id)
    return or_(batches.c.generation < generation, earlier)


def _at(generation: int, batch_id: int) -> ColumnElement[bool]:
    return and_(batches.c.generation == generation, batches.c.batch_id == batch_id)


@asynccontextmanager
async def _upgrading() -> AsyncIterator[None]:
    """The others of this process may be on this loop, or on another."""
    while not schema.UPGRADING.acquire(blocking=False):  # noqa: ASYNC110 - no event has both
        await asyncio.sleep(_AGAIN_S)
    try:
        yield
    finally:
        schema.UPGRADING.release()

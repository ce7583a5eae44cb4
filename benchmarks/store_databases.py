"""The databases that the offset store is measured in, and the way past it to the same tables."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from sqlalchemy import make_url

from benchmarks import kept_batches
from sparklag_offsets.store import open_store
from tests.databases.mariadb import MariaDBServer
from tests.databases.postgresql import PostgreSQLServer


class Database(Protocol):
    """One kind of database, running."""

    name: str
    mark: str
    """What stands for a value in its driver's statements."""

    def new_database(self) -> str:
        """The URL of an empty one."""

    def plain(self, url: str) -> Any:
        """A connection to it of a driver, not committing by itself."""

    async def plain_async(self, url: str) -> Any:
        """The same of the driver that the store uses."""


class _PostgreSQL(PostgreSQLServer):
    mark = "%s"

    def plain(self, url: str) -> Any:
        import psycopg

        return psycopg.connect(url)

    async def plain_async(self, url: str) -> Any:
        import psycopg

        return await psycopg.AsyncConnection.connect(url)


class _MariaDB(MariaDBServer):
    mark = "%s"

    def plain(self, url: str) -> Any:
        connection = self.connect(urlsplit(url).path[1:])
        connection.autocommit(False)
        return connection

    async def plain_async(self, url: str) -> Any:
        import aiomysql

        at = make_url(url)
        return await aiomysql.connect(
            host=at.host, port=at.port, user=at.username, password=at.password, db=at.database
        )


class _SQLite:
    name = "SQLite"
    mark = "?"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def new_database(self) -> str:
        self._count += 1
        return f"sqlite:///{self._folder}/{self._count}.db"

    def plain(self, url: str) -> Any:
        connection = sqlite3.connect(_path(url))
        # As the store has it.
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    async def plain_async(self, url: str) -> Any:
        import aiosqlite

        return await aiosqlite.connect(_path(url))


@contextmanager
def databases() -> Iterator[Sequence[Database]]:
    """PostgreSQL, SQLite and MariaDB; nothing is left of them."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="sparklag-sqlite-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        postgresql = stack.enter_context(_PostgreSQL())
        mariadb = stack.enter_context(_MariaDB())
        yield postgresql, _SQLite(folder), mariadb


async def with_first_batches(database: Database, queries: int) -> tuple[str, list[int]]:
    """The URL of a database with our tables and the first batch of each query, and the queries'
    keys there."""
    url = database.new_database()
    store = open_store(url, create=True)
    try:
        await store.prepare()
        await store.write(
            [next(kept_batches.records(kept_batches.batches(query), 1)) for query in range(queries)]
        )
    finally:
        await store.aclose()
    connection = database.plain(url)
    try:
        cursor = connection.cursor()
        cursor.execute("SELECT query_key FROM sparklag_queries ORDER BY query_id")
        return url, [key for (key,) in cursor.fetchall()]
    finally:
        connection.close()


def insertion(database: Database, table: str, columns: Sequence[str], rows: int = 1) -> str:
    """The statement that inserts so many rows at once."""
    marks = f"({', '.join([database.mark] * len(columns))})"
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([marks] * rows)}"


def _path(url: str) -> str:
    return url.removeprefix("sqlite:///")

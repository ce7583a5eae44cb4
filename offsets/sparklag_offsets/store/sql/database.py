"""SQL databases: connections to each kind, the tables with their migration, and the rows."""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    InvalidRequestError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from sparklag_offsets.errors import (
    Deadlock,
    NewerSchema,
    RecordRefused,
    StoreAway,
    StoreError,
    StoreMissing,
    UnusableStore,
)
from sparklag_offsets.store.batch_record import BatchRecord, unusable_url
from sparklag_schemas import Observation

CONNECT_S: Final = 5
_DRIVERS: Final = {
    "sqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+aiomysql",
    "mariadb": "mariadb+aiomysql",
}
_ARGUMENTS: Final[dict[str, dict[str, Any]]] = {
    "psycopg": {"connect_timeout": CONNECT_S, "application_name": "sparklag"},
    "aiomysql": {"connect_timeout": CONNECT_S, "charset": "utf8mb4"},
}
_BUSY_MS: Final = 10_000
"""SQLite's wait for another writer."""


def make_engine(url: str, shown: str, *, create: bool) -> AsyncEngine:
    """Does not connect yet. Raises UnusableStore, ModuleNotFoundError for a driver."""
    try:
        parsed = sa.make_url(url)
        parsed = parsed.set(drivername=_DRIVERS.get(parsed.drivername, parsed.drivername))
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(parsed, shown, create)
        arguments = _ARGUMENTS.get(parsed.get_driver_name(), {})
        engine = create_async_engine(
            parsed, pool_size=2, max_overflow=2, pool_pre_ping=True, connect_args=arguments
        )
    except (ArgumentError, InvalidRequestError, NoSuchModuleError, ValueError) as error:
        raise unusable_url(url, error, _form(url)) from None
    if "@" in (parsed.host or ""):
        raise UnusableStore(
            f"the offset store's URL {shown} has more than one @: special characters in a"
            " password are percent-encoded (@ as %40)"
        )
    if not parsed.database:
        raise UnusableStore(
            f"the offset store's URL {shown} names no database; it takes {_form(url)}"
        )

    @sa.event.listens_for(engine.sync_engine, "do_connect")
    def connect(dialect: Any, _: object, arguments: Any, options: Any) -> Any:
        try:
            return dialect.connect(*arguments, **options)
        except (TypeError, ValueError, AttributeError) as error:
            raise UnusableStore(
                f"the offset store's URL {shown} has options that its driver does not take: {error}"
            ) from None

    return engine


def _form(url: str) -> str:
    scheme = url.partition(":")[0]
    if scheme.startswith("sqlite"):
        return f"{scheme}:///offsets.db, or {scheme}:////an/absolute/path.db"
    return f"{scheme}://user:password@host/database, the password percent-encoded"


def _sqlite(url: sa.URL, shown: str, create: bool) -> AsyncEngine:
    path = url.database or ""
    if path in ("", ":memory:"):
        raise UnusableStore(f"{shown}: an offset store in memory is lost at the end: name a file")
    if not create and not Path(path).exists():
        raise StoreMissing(f"no offset store at {shown}: there is no file {path}")
    if not Path(path).absolute().parent.is_dir():
        raise UnusableStore(f"no offset store at {shown}: there is no folder for it")
    # Opening a file is cheap, so no connection stays open.
    engine = create_async_engine(url, poolclass=NullPool)
    sa.event.listen(engine.sync_engine, "do_connect", _require_openable)
    sa.event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    return engine


def _require_openable(dialect: Any, _: object, arguments: Any, options: Any) -> None:
    """aiosqlite leaks a thread for a file that cannot be opened, which later fails noisily."""
    sqlite3.connect(arguments[0], uri=bool(options.get("uri"))).close()


def _prepare_sqlite(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    # First: the next statement may have to wait for another connection.
    cursor.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
    # With WAL readers do not wait for writers. The change itself does not wait: while another
    # connection writes it fails, and a later connection makes it.
    with suppress(sqlite3.OperationalError):
        cursor.execute("PRAGMA journal_mode = WAL")
    # A commit is on the disk.
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


_DEADLOCK: Final = re.compile(r"\(1213,")
_SQLSTATE_DEADLOCK: Final = "40P01"
_MAX_TEXT: Final = 300


@contextmanager
def errors_translated(shown: str) -> Iterator[None]:
    """Translate errors to StoreError, with the store's name and without credentials."""
    try:
        yield
    except StoreError:
        raise
    except asyncio.TimeoutError:
        raise StoreAway(f"the offset store at {shown} does not answer") from None
    except DataError as error:
        reason = _line(error.orig or error)
        raise RecordRefused(f"the offset store at {shown} refuses a record: {reason}") from error
    except DBAPIError as error:
        reason = _line(error.orig or error)
        if _DEADLOCK.match(reason) or getattr(error.orig, "sqlstate", None) == _SQLSTATE_DEADLOCK:
            raise Deadlock(f"the offset store at {shown}: {reason}") from error
        raise StoreAway(f"the offset store at {shown}: {reason}") from error
    except (SQLAlchemyError, OSError) as error:
        # OSError: a driver may raise the system's error as it is.
        raise StoreAway(f"the offset store at {shown}: {_line(error)}") from error


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + " …"


# Its own table: the application may use Alembic in the same database.
_VERSION_TABLE: Final = "sparklag_schema_version"
_LOCK: Final = "sparklag_schema"
_LOCK_NUMBER: Final = 7_526_466_455
_LOCK_S: Final = 30
UPGRADING: Final = threading.Lock()
"""Held during `upgrade`: Alembic runs one migration at a time in a process."""
logging.getLogger("alembic.runtime.migration").setLevel(logging.WARNING)


def upgrade(connection: sa.Connection, shown: str) -> None:
    """Create or migrate the tables where needed. Safe in several processes: a lock lets one do it.
    Raises NewerSchema."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:n)"), {"n": _LOCK_NUMBER})
    elif connection.dialect.name in ("mysql", "mariadb"):
        # Closing the connection, after the commit, frees the lock: so it leaves the pool.
        connection.detach()
        connection.execute(sa.text("SELECT GET_LOCK(:name, :s)"), {"name": _LOCK, "s": _LOCK_S})
    elif connection.dialect.name == "sqlite":
        _begin_immediate(connection)
    config = _config()
    config.attributes.update(connection=connection, version_table=_VERSION_TABLE)
    if not is_newest(connection, shown):
        command.upgrade(config, "head")


def _begin_immediate(connection: sa.Connection) -> None:
    """Python's sqlite3 begins no transaction for DDL: a kill would leave some of the tables."""
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    except OperationalError as error:
        # An engine that begins transactions itself has done so.
        if "within a transaction" not in str(error.orig):
            raise


def is_newest(connection: sa.Connection, shown: str) -> bool:
    """Return whether the tables exist and have the newest schema. Raises NewerSchema."""
    context = MigrationContext.configure(connection, opts={"version_table": _VERSION_TABLE})
    revision = context.get_current_revision()
    revisions = _revisions()
    if revision is not None and revision not in revisions:
        raise NewerSchema(shown, revision, revisions[0])
    return revision == revisions[0]


@cache
def _revisions() -> list[str]:
    """The newest first."""
    scripts = ScriptDirectory.from_config(_config())
    return [script.revision for script in scripts.walk_revisions()]


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "sparklag_offsets:store/sql/migrations")
    return config


MAX_NAME: Final = 700
"""MySQL's limit for an index."""
queries: Final = sa.table(
    "sparklag_queries",
    sa.column("query_key", sa.Integer),
    sa.column("query_id", sa.String(200)),
    sa.column("name", sa.String),
    sa.column("cluster", sa.String),
)
batches: Final = sa.table(
    "sparklag_batches",
    sa.column("query_key", sa.Integer),
    sa.column("generation", sa.Integer),
    sa.column("batch_id", sa.BigInteger),
    sa.column("first_batch_id", sa.BigInteger),
    sa.column("run_id", sa.String(200)),
    sa.column("processed_at", sa.BigInteger),
    sa.column("observed_at", sa.BigInteger),
    sa.column("is_inferred", sa.Boolean),
    sa.column("ranges", sa.Text),
)
NEWEST_FIRST: Final = (batches.c.generation.desc(), batches.c.batch_id.desc())
_OF_BATCH: Final = [column for column in batches.c if column.name != "query_key"]
RECORDS: Final = sa.select(
    queries.c.query_id, queries.c.name.label("query"), queries.c.cluster, *_OF_BATCH
).join_from(queries, batches, batches.c.query_key == queries.c.query_key)
"""The query for all records, as rows with the fields of a BatchRecord."""
_ROWS: Final = sa.func.json_to_recordset(
    sa.cast(sa.bindparam("rows", type_=sa.Text), postgresql.JSON)
)
_COLUMNS: Final = _ROWS.table_valued(*(sa.column(each.name, each.type) for each in batches.c))
_FROM_JSON: Final = (
    postgresql.insert(batches)
    .from_select(batches.c.keys(), sa.select(_COLUMNS.render_derived(with_types=True)))
    .on_conflict_do_nothing()
)
_encode = msgspec.json.Encoder().encode


def query_values(of: BatchRecord | Observation) -> dict[str, Any]:
    """A query's row."""
    name = of.query[:MAX_NAME] if of.query is not None else None
    return {"query_id": of.query_id, "name": name, "cluster": of.cluster[:MAX_NAME]}


def batch_values(record: BatchRecord, query_key: int) -> dict[str, Any]:
    """A record's row; `query_key` is its query's."""
    return {"query_key": query_key} | {each.name: getattr(record, each.name) for each in _OF_BATCH}


def insert_new(dialect: str, rows: Sequence[dict[str, Any]]) -> tuple[sa.Insert, Any]:
    """The insert of batches, and its parameters; an existing batch stays as it is."""
    if dialect in ("mysql", "mariadb"):
        # IGNORE would hide other errors too.
        return mysql.insert(batches).on_duplicate_key_update(batch_id=batches.c.batch_id), rows
    if dialect == "postgresql":
        # A parameter for each value takes four times the CPU of one for all.
        return _FROM_JSON, {"rows": _encode(rows).decode()}
    return sqlite.insert(batches).on_conflict_do_nothing(), rows


def insert_or_rename(dialect: str) -> sa.Insert:
    """The insert of queries; an existing query gets its current name."""
    if dialect in ("mysql", "mariadb"):
        into_mysql = mysql.insert(queries)
        return into_mysql.on_duplicate_key_update(name=into_mysql.inserted.name)
    insert: Any = (postgresql if dialect == "postgresql" else sqlite).insert(queries)
    upsert: sa.Insert = insert.on_conflict_do_update(
        index_elements=["query_id"], set_={"name": insert.excluded.name}
    )
    return upsert

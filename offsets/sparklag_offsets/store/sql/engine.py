"""Connects to each kind of SQL database."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, event, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    InvalidRequestError,
    NoSuchModuleError,
    SQLAlchemyError,
)
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from sparklag_offsets.errors import (
    Deadlock,
    RecordRefused,
    StoreAway,
    StoreError,
    StoreMissing,
    UnusableStore,
)
from sparklag_offsets.store.offset_store import unusable_url

CONNECT_S: Final = 5
_DRIVERS: Final = {
    "sqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+aiomysql",
    "mariadb": "mariadb+aiomysql",
}
_BUSY_MS: Final = 10_000
"""So long SQLite waits for another writer."""


def make_engine(url: str, shown: str, *, create: bool) -> AsyncEngine:
    """Does not connect yet. Raises UnusableStore, ModuleNotFoundError for a driver."""
    try:
        parsed = make_url(url)
        parsed = parsed.set(drivername=_DRIVERS.get(parsed.drivername, parsed.drivername))
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(parsed, shown, create)
        engine = create_async_engine(
            parsed, pool_size=2, max_overflow=2, pool_pre_ping=True, connect_args=_arguments(parsed)
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

    @event.listens_for(engine.sync_engine, "do_connect")
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


def _arguments(url: URL) -> dict[str, Any]:
    if url.get_driver_name() == "psycopg":
        return {"connect_timeout": CONNECT_S, "application_name": "sparklag"}
    if url.get_driver_name() == "aiomysql":
        return {"connect_timeout": CONNECT_S, "charset": "utf8mb4"}
    return {}


def _sqlite(url: URL, shown: str, create: bool) -> AsyncEngine:
    path = url.database or ""
    if path in ("", ":memory:"):
        raise UnusableStore(f"{shown}: an offset store in memory is lost at the end: name a file")
    if not create and not Path(path).exists():
        raise StoreMissing(f"no offset store at {shown}: there is no file {path}")
    if not Path(path).absolute().parent.is_dir():
        raise UnusableStore(f"no offset store at {shown}: there is no folder for it")
    # Opening a file is cheap, so no connection stays open.
    engine = create_async_engine(url, poolclass=NullPool)
    event.listen(engine.sync_engine, "do_connect", _require_openable)
    event.listen(engine.sync_engine, "connect", _prepare_sqlite)
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

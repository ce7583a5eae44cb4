"""The interface of the offset stores, and which of them a URL names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, Protocol

from sparklag_offsets.errors import UnusableStore
from sparklag_offsets.store.batch_record import BatchRecord, RecordedQuery
from sparklag_schemas.text.redaction import shown_url

_EXTRAS: Final = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "mongodb": "mongodb",
    "mongodb+srv": "mongodb",
}


class Retention(NamedTuple):
    """The records to delete, never the last of a query."""

    before_ms: int | None = None
    """Records that completed earlier, epoch milliseconds. None: no limit."""
    keep_batches: int | None = None
    """The number of records that each query keeps. None: no limit."""


class OffsetStore(Protocol):
    """Every method but `aclose` raises StoreError. After an error the next call reconnects."""

    shown: str
    """The URL without credentials."""

    async def prepare(self) -> None:
        """Create the tables, or migrate older ones. Concurrent calls are safe."""

    async def newest(self, query_ids: Collection[str]) -> dict[str, BatchRecord]:
        """The last record of each query that has one."""

    async def write(self, records: Sequence[BatchRecord]) -> None:
        """Write all of them, or the first of them. An existing record stays as it is."""

    async def as_of(self, query_id: str, at_ms: int | None) -> BatchRecord | None:
        """The last record that completed at or before `at_ms`; None: the last of all."""

    async def queries(self, name_or_id: str | None = None) -> list[RecordedQuery]:
        """The query of that id, or those of that name; without either, all. By name, then id."""

    async def prune(self, retention: Retention) -> int:
        """Delete old records; returns how many."""

    async def aclose(self) -> None:
        """Disconnect; bounded in time. An error of the database is suppressed."""


def unusable_url(url: str, error: Exception, form: str) -> UnusableStore:
    """The error for a URL that a driver refuses; `form` is what a valid one looks like."""
    # The driver's text may quote a password in the URL.
    reason = "" if "@" in url or "?" in url else f": {error}"
    return UnusableStore(
        f"the offset store's URL {shown_url(url)} cannot be used{reason}; it takes {form}"
    )


def open_store(url: str, *, create: bool = False) -> OffsetStore:
    """The store at `url`: `sqlite:///offsets.db` (relative to the working directory; four slashes
    for an absolute path), `postgresql://user:password@host/database`, `mysql://…`, `mariadb://…`,
    `mongodb://…`. A driver may be named: `postgresql+psycopg://…`.

    Does not connect yet. `create`: a missing SQLite file is created, and its tables by `prepare`.
    Raises UnusableStore.
    """
    scheme = url.partition(":")[0].lower()
    kind = scheme if scheme in _EXTRAS else scheme.partition("+")[0]
    if kind not in _EXTRAS:
        raise UnusableStore(
            f"{shown_url(url)!r} is not the URL of an offset store: it begins with sqlite://,"
            " postgresql://, mysql://, mariadb:// or mongodb://"
        )
    try:
        # Imported on demand: neither need be installed.
        if _EXTRAS[kind] == "mongodb":
            from sparklag_offsets.store.mongo_store import MongoStore

            return MongoStore(url)
        from sparklag_offsets.store.sql.sql_store import SqlStore

        return SqlStore(url, create=create)
    except ImportError as error:
        # ImportError: psycopg without its C library is installed, and cannot be imported.
        raise UnusableStore(
            f"an offset store at {kind}:// needs {error.name or kind}:"
            f" pip install 'sparklag[{_EXTRAS[kind]}]'"
        ) from error

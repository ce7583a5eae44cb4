"""The offset store: the offset ranges of every batch, in a database outside Spark."""

from __future__ import annotations

from typing import Final

from sparklag_offsets.errors import UnusableStore
from sparklag_offsets.store.batch_record import OffsetStore
from sparklag_schemas.errors import install_command
from sparklag_schemas.text.locations import shown_url

_EXTRAS: Final = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "mongodb": "mongodb",
    "mongodb+srv": "mongodb",
}


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
            f" {install_command(_EXTRAS[kind])}"
        ) from error

"""Migrates the tables of a database to the newest schema, and detects newer ones."""

from __future__ import annotations

import logging
import threading
from functools import cache
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from sparklag_offsets.errors import NewerSchema

# Its own table: the application may use Alembic in the same database.
_VERSION_TABLE: Final = "sparklag_schema_version"
_LOCK: Final = "sparklag_schema"
_LOCK_NUMBER: Final = 7_526_466_455
_LOCK_S: Final = 30

UPGRADING: Final = threading.Lock()
"""Held during `upgrade`: Alembic runs one migration at a time in a process."""

logging.getLogger("alembic.runtime.migration").setLevel(logging.WARNING)


def upgrade(connection: Connection, shown: str) -> None:
    """Create or migrate the tables where needed. Safe in several processes: a lock lets one do it.
    Raises NewerSchema."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": _LOCK_NUMBER})
    elif connection.dialect.name in ("mysql", "mariadb"):
        # The connection's end frees the lock, after the commit: so it leaves the pool.
        connection.detach()
        connection.execute(text("SELECT GET_LOCK(:name, :s)"), {"name": _LOCK, "s": _LOCK_S})
    elif connection.dialect.name == "sqlite":
        _begin_immediate(connection)
    config = _config()
    config.attributes.update(connection=connection, version_table=_VERSION_TABLE)
    if not is_newest(connection, shown):
        command.upgrade(config, "head")


def _begin_immediate(connection: Connection) -> None:
    """Python's sqlite3 begins no transaction for DDL: a kill would leave half of the tables."""
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    except OperationalError as error:
        # An engine that begins transactions itself has done so.
        if "within a transaction" not in str(error.orig):
            raise


def is_newest(connection: Connection, shown: str) -> bool:
    """Whether the tables exist and have the newest schema. Raises NewerSchema."""
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

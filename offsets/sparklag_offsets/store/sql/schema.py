"""Brings the tables of a database to the newest schema, or finds out that they are newer still."""

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

# Of its own: the database may be shared with tables that Alembic keeps too.
_VERSION_TABLE: Final = "sparklag_schema_version"
_LOCK: Final = "sparklag_schema"
_LOCK_NUMBER: Final = 7_526_466_455
_LOCK_S: Final = 30

UPGRADING: Final = threading.Lock()
"""Held during `upgrade`: Alembic has one at a time in a process."""

logging.getLogger("alembic.runtime.migration").setLevel(logging.WARNING)


def upgrade(connection: Connection, shown: str) -> None:
    """Make or change the tables where they are not as they are to be. Several processes may at
    once: one does it. Raises NewerSchema."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": _LOCK_NUMBER})
    elif connection.dialect.name in ("mysql", "mariadb"):
        # Freed with the connection, once all is committed: so this one is not kept open.
        connection.detach()
        connection.execute(text("SELECT GET_LOCK(:name, :s)"), {"name": _LOCK, "s": _LOCK_S})
    elif connection.dialect.name == "sqlite":
        _begin_writing(connection)
    config = _config()
    config.attributes.update(connection=connection, version_table=_VERSION_TABLE)
    if not is_newest(connection, shown):
        command.upgrade(config, "head")


def _begin_writing(connection: Connection) -> None:
    """Python's sqlite3 begins no transaction for DDL: a kill would leave half of the tables."""
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    except OperationalError as error:
        # An engine that begins them itself has done so.
        if "within a transaction" not in str(error.orig):
            raise


def is_newest(connection: Connection, shown: str) -> bool:
    """Whether there are tables, of the newest schema. Raises NewerSchema."""
    context = MigrationContext.configure(connection, opts={"version_table": _VERSION_TABLE})
    found = context.get_current_revision()
    if found is None:
        return False
    known = _known()
    if found not in known:
        raise NewerSchema(
            f"the offset store at {shown} has schema {found}, and this sparklag knows those up to"
            f" {known[0]}: a newer sparklag made it, upgrade this one"
        )
    return found == known[0]


@cache
def _known() -> list[str]:
    """The revisions, the newest first: read from their files once."""
    scripts = ScriptDirectory.from_config(_config())
    return [script.revision for script in scripts.walk_revisions()]


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "sparklag_offsets:store/sql/migrations")
    return config

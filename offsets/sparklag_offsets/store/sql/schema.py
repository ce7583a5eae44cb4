"""Brings the tables of a database to the newest schema, or finds out that they are newer still."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from sparklag_offsets.errors import NewerSchema
from sparklag_offsets.store.sql.tables import NEWEST

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
    with _alone(connection):
        if not is_newest(connection, shown):
            config = _config()
            config.attributes.update(connection=connection, version_table=_VERSION_TABLE)
            command.upgrade(config, "head")


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    if connection.dialect.name in ("mysql", "mariadb"):
        # Every CREATE ends the transaction, so it is not of one; nor does it end with the
        # connection, which goes back to the pool.
        connection.execute(text("SELECT GET_LOCK(:name, :s)"), {"name": _LOCK, "s": _LOCK_S})
        try:
            yield
        finally:
            connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": _LOCK})
        return
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": _LOCK_NUMBER})
    else:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    yield


def is_newest(connection: Connection, shown: str) -> bool:
    """Whether there are tables, of the newest schema. Raises NewerSchema."""
    context = MigrationContext.configure(connection, opts={"version_table": _VERSION_TABLE})
    found = context.get_current_revision()
    if found in (None, NEWEST):
        return found is not None
    scripts = ScriptDirectory.from_config(_config())
    known = [script.revision for script in scripts.walk_revisions()]
    if found not in known:
        raise NewerSchema(
            f"the offset store at {shown} has schema {found}, and this sparklag knows those up to"
            f" {known[0]}: a newer sparklag made it, upgrade this one"
        )
    return False


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "sparklag_offsets:store/sql/migrations")
    return config

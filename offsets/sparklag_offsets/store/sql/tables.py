"""The tables of the SQL store: their migration, their statements and their rows."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import msgspec
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    BigInteger,
    Boolean,
    Connection,
    Insert,
    Integer,
    Row,
    Select,
    String,
    Text,
    bindparam,
    cast,
    column,
    func,
    select,
    table,
    text,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import OperationalError

from sparklag_offsets.errors import NewerSchema
from sparklag_offsets.store.batch_record import BatchRecord

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


MAX_NAME: Final = 700
"""MySQL's limit for an index."""
queries: Final = table(
    "sparklag_queries",
    column("query_key", Integer),
    column("query_id", String(200)),
    column("name", String),
    column("cluster", String),
)
batches: Final = table(
    "sparklag_batches",
    column("query_key", Integer),
    column("generation", Integer),
    column("batch_id", BigInteger),
    column("first_batch_id", BigInteger),
    column("run_id", String(200)),
    column("processed_at", BigInteger),
    column("observed_at", BigInteger),
    column("is_inferred", Boolean),
    column("ranges", Text),
)
NEWEST_FIRST: Final = (batches.c.generation.desc(), batches.c.batch_id.desc())
_OF_BATCH: Final = [column for column in batches.c if column.name != "query_key"]
_RECORD: Final = (queries.c.query_id, queries.c.name.label("query"), queries.c.cluster, *_OF_BATCH)
_ROWS: Final = func.json_to_recordset(cast(bindparam("rows", type_=Text), postgresql.JSON))
_COLUMNS: Final = _ROWS.table_valued(*(column(each.name, each.type) for each in batches.c))
_FROM_JSON: Final = (
    postgresql.insert(batches)
    .from_select(batches.c.keys(), select(_COLUMNS.render_derived(with_types=True)))
    .on_conflict_do_nothing()
)
_encode = msgspec.json.Encoder().encode


def select_records() -> Select[Any]:
    """All records, as rows with the fields of a BatchRecord."""
    return select(*_RECORD).join_from(queries, batches, batches.c.query_key == queries.c.query_key)


def record_of(row: Row[Any]) -> BatchRecord:
    """The record in one of these rows."""
    return BatchRecord(**row._mapping)


def query_values(query_id: str, name: str | None, cluster: str) -> dict[str, Any]:
    """A query's row."""
    return {
        "query_id": query_id,
        "name": name[:MAX_NAME] if name is not None else None,
        "cluster": cluster[:MAX_NAME],
    }


def batch_values(record: BatchRecord, query_key: int) -> dict[str, Any]:
    """A record's row; `query_key` is its query's."""
    return {"query_key": query_key} | {each.name: getattr(record, each.name) for each in _OF_BATCH}


def insert_new(dialect: str, rows: Sequence[dict[str, Any]]) -> tuple[Insert, Any]:
    """The insert of batches, and its parameters; an existing batch stays as it is."""
    if dialect in ("mysql", "mariadb"):
        # IGNORE would hide other errors too.
        return mysql.insert(batches).on_duplicate_key_update(batch_id=batches.c.batch_id), rows
    if dialect == "postgresql":
        # A parameter for each value takes four times the CPU of one for all.
        return _FROM_JSON, {"rows": _encode(rows).decode()}
    return sqlite.insert(batches).on_conflict_do_nothing(), rows


def insert_or_rename(dialect: str) -> Insert:
    """The insert of queries; an existing query gets its current name."""
    if dialect in ("mysql", "mariadb"):
        into_mysql = mysql.insert(queries)
        return into_mysql.on_duplicate_key_update(name=into_mysql.inserted.name)
    insert: Any = (postgresql if dialect == "postgresql" else sqlite).insert(queries)
    upsert: Insert = insert.on_conflict_do_update(
        index_elements=["query_id"], set_={"name": insert.excluded.name}
    )
    return upsert

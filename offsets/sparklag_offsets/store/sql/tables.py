"""The tables as statements use them, their rows, and inserts that may find a row.

The newest migration declares them in full, with keys and indexes. The ranges of a batch are one
text: a row for each partition would be fifty times as many, and no query reads a single one. The
view `sparklag_ranges` shows them as rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
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
)
from sqlalchemy.dialects import mysql, postgresql, sqlite

from sparklag_offsets.store.batch_record import BatchRecord

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

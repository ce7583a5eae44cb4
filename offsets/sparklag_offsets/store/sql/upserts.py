"""Inserts of what may be there already, as each kind of database has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Insert, Text, bindparam, cast, column, func, select
from sqlalchemy.dialects import mysql, postgresql, sqlite

from sparklag_offsets.store.sql.tables import batches, queries

_ROWS: Final = func.json_to_recordset(cast(bindparam("rows", type_=Text), postgresql.JSON))
_COLUMNS: Final = _ROWS.table_valued(*(column(each.name, each.type) for each in batches.c))
_FROM_JSON: Final = (
    postgresql.insert(batches)
    .from_select(batches.c.keys(), select(_COLUMNS.render_derived(with_types=True)))
    .on_conflict_do_nothing()
)
_encode = msgspec.json.Encoder().encode


def insert_new(dialect: str, rows: Sequence[dict[str, Any]]) -> tuple[Insert, Any]:
    """Of batches, and its parameters; one that is there stays as it is."""
    if dialect in ("mysql", "mariadb"):
        # IGNORE would hide what else may be wrong.
        return mysql.insert(batches).on_duplicate_key_update(batch_id=batches.c.batch_id), rows
    if dialect == "postgresql":
        # A parameter for each value takes four times the CPU of one for all.
        return _FROM_JSON, {"rows": _encode(rows).decode()}
    return sqlite.insert(batches).on_conflict_do_nothing(), rows


def insert_or_rename(dialect: str) -> Insert:
    """Of queries; one that is there gets the name it has now."""
    if dialect in ("mysql", "mariadb"):
        insert = mysql.insert(queries)
        return insert.on_duplicate_key_update(name=insert.inserted.name)
    if dialect == "postgresql":
        of_postgresql = postgresql.insert(queries)
        return of_postgresql.on_conflict_do_update(
            index_elements=["query_id"], set_={"name": of_postgresql.excluded.name}
        )
    of_sqlite = sqlite.insert(queries)
    return of_sqlite.on_conflict_do_update(
        index_elements=["query_id"], set_={"name": of_sqlite.excluded.name}
    )

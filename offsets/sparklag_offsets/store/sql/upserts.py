"""Inserts of what may be there already, as each kind of database has them."""

from __future__ import annotations

from sqlalchemy import Insert
from sqlalchemy.dialects import mysql, postgresql, sqlite

from sparklag_offsets.store.sql.tables import batches, queries


def insert_new(dialect: str) -> Insert:
    """Of batches; one that is there stays as it is."""
    if dialect in ("mysql", "mariadb"):
        # IGNORE would hide what else may be wrong.
        return mysql.insert(batches).on_duplicate_key_update(batch_id=batches.c.batch_id)
    if dialect == "postgresql":
        return postgresql.insert(batches).on_conflict_do_nothing()
    return sqlite.insert(batches).on_conflict_do_nothing()


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

"""Records as rows of the tables, and back."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Row, Select, select

from sparklag_offsets.store.batch_record import BatchRecord, Place
from sparklag_offsets.store.sql.tables import LONGEST_NAME, batches, queries

_RECORD: Final = (queries.c.query_id, queries.c.name, queries.c.cluster, *batches.c)


def select_records() -> Select[Any]:
    """All of them."""
    return select(*_RECORD).join_from(queries, batches)


def record_of(row: Row[Any]) -> BatchRecord:
    """The record in one of these rows."""
    return BatchRecord(
        query_id=row.query_id,
        query=row.name,
        cluster=row.cluster,
        run_id=row.run_id,
        place=Place(row.generation, row.batch_id),
        first_batch_id=row.first_batch_id,
        processed_at=row.processed_at,
        observed_at=row.observed_at,
        is_inferred=bool(row.is_inferred),
        ranges=row.ranges,
    )


def query_values(query_id: str, name: str | None, cluster: str) -> dict[str, Any]:
    """A query's row."""
    return {
        "query_id": query_id,
        "name": name[:LONGEST_NAME] if name is not None else None,
        "cluster": cluster[:LONGEST_NAME],
    }


def batch_values(record: BatchRecord, query_key: int) -> dict[str, Any]:
    """A record's row; `query_key` is its query's."""
    return {
        "query_key": query_key,
        "generation": record.place.generation,
        "batch_id": record.place.batch_id,
        "first_batch_id": record.first_batch_id,
        "run_id": record.run_id,
        "processed_at": record.processed_at,
        "observed_at": record.observed_at,
        "is_inferred": record.is_inferred,
        "ranges": record.ranges,
    }

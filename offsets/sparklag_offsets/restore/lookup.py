"""Finds where a query was, in the store."""

from __future__ import annotations

from datetime import datetime, timezone

from sparklag_offsets.errors import AmbiguousQuery, BeforeFirstBatch, UnknownQuery
from sparklag_offsets.store.batch_record import BatchRecord, KeptQuery
from sparklag_offsets.store.offset_store import OffsetStore


async def find_record(store: OffsetStore, query: str, at_ms: int | None) -> BatchRecord:
    """The last record of a query, by name or id, that completed at that moment or before.

    A query whose checkpoint was deleted has a new id and the same name: of those that bore a name
    one after the other, the one of that moment is meant.
    Raises UnknownQuery, AmbiguousQuery, BeforeFirstBatch, StoreError.
    """
    found = await store.queries(query)
    if not found:
        raise UnknownQuery(f"nothing is kept of query {query!r} in the offset store {store.shown}")
    begun = [one for one in found if at_ms is None or one.first_at <= at_ms]
    if not begun:
        first = min(one.first_at for one in found)
        raise BeforeFirstBatch(
            f"query {query}: the first batch that is kept completed at {_time(first)}, nothing is"
            f" known of {_time(at_ms)}"
        )
    meant = max(begun, key=lambda one: (one.first_at, one.query_id))
    beside = [one for one in begun if one is not meant and await _goes_on(store, one, meant, at_ms)]
    if beside:
        query_ids = sorted(one.query_id for one in (meant, *beside))
        raise AmbiguousQuery(
            f"{len(query_ids)} queries have the name {query!r} at the same time: ask for one of"
            f" them by its id ({', '.join(query_ids)})",
            query_ids,
        )
    record = await store.as_of(meant.query_id, at_ms)
    if record is None:
        # It went while it was looked for.
        raise UnknownQuery(f"nothing is kept of query {query!r} in the offset store {store.shown}")
    return record


async def _goes_on(store: OffsetStore, one: KeptQuery, meant: KeptQuery, at_ms: int | None) -> bool:
    """Whether `one` completed a batch after `meant` had begun, and by then."""
    last_at: int | None = one.last_at
    if at_ms is not None and one.last_at > at_ms:
        record = await store.as_of(one.query_id, at_ms)
        last_at = record.processed_at if record is not None else None
    return last_at is not None and last_at > meant.first_at


def _time(at_ms: int | None) -> str:
    assert at_ms is not None
    return datetime.fromtimestamp(at_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")

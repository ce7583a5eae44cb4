"""Restores a query's position: finds its record, checks it against Kafka, returns Spark's JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timezone

import msgspec

from sparklag_kafka.brokers.logs import read_bounds
from sparklag_offsets.checkpoints import CheckpointStore, read_checkpoint
from sparklag_offsets.errors import AmbiguousQuery, BeforeFirstBatch, RestoreError, UnknownQuery
from sparklag_offsets.restore.positions import (
    Edge,
    OnDeleted,
    RestorePosition,
    checked_offsets,
    position_of_checkpoint,
    position_of_record,
    unchecked_offsets,
)
from sparklag_offsets.store.batch_record import BatchRecord, OffsetStore, RecordedQuery
from sparklag_schemas import ClusterAccess, Offsets, Settings
from sparklag_schemas.messages.query_names import MIN_PREFIX, ids_with_prefix
from sparklag_schemas.settings.clusters import ClusterNames, access_by_address
from sparklag_schemas.text.locations import redact_location, shown_url
from sparklag_schemas.text.printable import first_few, printable


@dataclass(frozen=True)
class RestoredOffsets:
    """The offsets for a query to start with, or to end with."""

    position: RestorePosition
    offsets: Offsets
    warnings: tuple[str, ...] = ()

    @property
    def json(self) -> str:
        """Spark's `startingOffsets`, or `endingOffsets`."""
        return msgspec.json.encode(self.offsets).decode()


@dataclass(frozen=True)
class RestoreOptions:
    """See `starting_offsets` of sparklag_listener."""

    edge: Edge = "starting"
    on_deleted: OnDeleted = "error"
    source: int | None = None
    topics: Collection[str] | None = None
    bootstrap_servers: str | None = None
    """The brokers of the topics. None: the brokers that the query read from."""


async def from_store(
    store: OffsetStore, query: str, at_ms: int | None, options: RestoreOptions, settings: Settings
) -> RestoredOffsets:
    """The position of a query (by name or id) at `at_ms`; None: after its last batch.

    Raises StoreError, RestoreError, KafkaUnavailable.
    """
    record = await find_record(store, query, at_ms)
    return await restore(position_of_record(record), options, settings)


async def from_checkpoint(
    location: str, options: RestoreOptions, settings: Settings
) -> RestoredOffsets:
    """The position of the query of that checkpoint. A checkpoint names no brokers: without others
    its offsets are not checked, with a warning.

    Raises CheckpointError, RestoreError, KafkaUnavailable.
    """
    store = CheckpointStore(settings.checkpoints.storage, settings.checkpoints.timeout_s)
    try:
        checkpoint = await asyncio.to_thread(read_checkpoint, store, location)
    finally:
        store.close()
    position = position_of_checkpoint(checkpoint, redact_location(location))
    named = options.bootstrap_servers or ClusterNames(settings).access_to(None)
    if named or options.on_deleted != "error":
        return await restore(position, options, settings)
    restored = await restore(position, replace(options, on_deleted="unchecked"), settings)
    text = f"{position.shown}: its offsets are not checked against Kafka: set bootstrap_servers"
    return replace(restored, warnings=(text,))


async def restore(
    position: RestorePosition, options: RestoreOptions, settings: Settings
) -> RestoredOffsets:
    """Raises RestoreError; KafkaUnavailable where no broker answers."""
    if isinstance(options.topics, str) or (options.topics is not None and not options.topics):
        # A str is a collection too: of its characters.
        raise RestoreError(f"topics takes a list of names, at least one; it got {options.topics!r}")
    position = position.of_source(options.source, options.topics)
    if options.on_deleted == "unchecked":
        return RestoredOffsets(position, unchecked_offsets(position, options.topics))
    topics = options.topics if options.topics is not None else {t.topic for t in position.topics}
    bounds = await read_bounds(topics, _access_to(position, options, settings))
    offsets, warnings = checked_offsets(
        position, bounds, options.edge, options.on_deleted, options.topics
    )
    return RestoredOffsets(position, offsets, tuple(warnings))


def _access_to(
    position: RestorePosition, options: RestoreOptions, settings: Settings
) -> ClusterAccess:
    """Access to the brokers in `options`, else to the brokers that the query read from."""
    if options.bootstrap_servers:
        return access_by_address(settings, options.bootstrap_servers)
    servers = next((t.bootstrap_servers for t in position.topics if t.bootstrap_servers), None)
    access = ClusterNames(settings).access_to(servers)
    if access is not None:
        return access
    if servers is None:
        raise RestoreError(
            f"{position.shown}: the brokers of its topics are not known: set bootstrap_servers"
        )
    raise RestoreError(
        f"{position.shown} read its topics at {printable(shown_url(servers), 200)}, which no"
        " setting names: add it to bootstrap_servers, addresses or clusters"
    )


async def find_record(store: OffsetStore, query: str, at_ms: int | None) -> BatchRecord:
    """The last record of a query that completed at or before `at_ms`. `query`: its name, its id, or
    the beginning of its id.

    A query whose checkpoint was deleted has a new id and the same name: of consecutive queries of
    one name, the one at that time is returned.
    Raises UnknownQuery, AmbiguousQuery, BeforeFirstBatch, StoreError.
    """
    unknown = UnknownQuery(f"query {query!r} is not in the offset store {store.shown}")
    recorded = await store.queries(query) or await _with_prefix(store, query)
    if not recorded:
        raise unknown
    started = [q for q in recorded if at_ms is None or q.first_at <= at_ms]
    if not started:
        first_at = min(q.first_at for q in recorded)
        raise BeforeFirstBatch(
            f"query {query}: the first recorded batch completed at {_iso(first_at)}, after"
            f" {_iso(at_ms)}"
        )
    newest = max(started, key=lambda q: (q.first_at, q.query_id))
    concurrent = [
        q for q in started if q is not newest and await _overlaps(store, q, newest, at_ms)
    ]
    if concurrent:
        query_ids = sorted(q.query_id for q in (newest, *concurrent))
        raise AmbiguousQuery(
            f"{len(query_ids)} queries have the name {query!r} at the same time: ask for one of"
            f" them by its id ({', '.join(query_ids)})",
            query_ids,
        )
    record = await store.as_of(newest.query_id, at_ms)
    if record is None:
        # Pruned in the meantime.
        raise unknown
    return record


async def _with_prefix(store: OffsetStore, prefix: str) -> list[RecordedQuery]:
    """The query whose id begins with `prefix`. Raises AmbiguousQuery."""
    recorded = await store.queries() if len(prefix) >= MIN_PREFIX else []
    query_ids = ids_with_prefix(prefix, (each.query_id for each in recorded))
    if len(query_ids) > 1:
        raise AmbiguousQuery(
            f"the ids of {len(query_ids)} queries begin with {prefix!r}: {first_few(query_ids)}",
            query_ids,
        )
    return [each for each in recorded if each.query_id in query_ids]


async def _overlaps(
    store: OffsetStore, query: RecordedQuery, newest: RecordedQuery, at_ms: int | None
) -> bool:
    """Return whether `query` completed a batch after `newest` had begun, and by `at_ms`."""
    last_at: int | None = query.last_at
    if at_ms is not None and query.last_at > at_ms:
        record = await store.as_of(query.query_id, at_ms)
        last_at = record.processed_at if record is not None else None
    return last_at is not None and last_at > newest.first_at


def _iso(at_ms: int | None) -> str:
    assert at_ms is not None
    return datetime.fromtimestamp(at_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")

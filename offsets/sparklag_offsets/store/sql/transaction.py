"""Writes a batch's record in the transaction that writes the batch's results: both, or neither.

A writer holds the lock on its query's row until the transaction ends, so it reads the newest
record. Where a transaction began to read before it had the lock (MySQL's repeatable read), the
primary key of the batches refuses a batch that another writer has recorded since.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final

from sqlalchemy import Connection, Engine, select, update
from sqlalchemy.exc import IntegrityError

from sparklag_offsets.errors import BatchConflict, NoKafkaOffsets, StoreAway, UnusableStore
from sparklag_offsets.store.batch_record import BatchRecord
from sparklag_offsets.store.batch_sequence import (
    BatchSequence,
    TopicIdOf,
    end_offsets_of,
    next_records,
)
from sparklag_offsets.store.sql import database
from sparklag_offsets.store.sql.database import (
    NEWEST_FIRST,
    RECORDS,
    batch_values,
    batches,
    errors_translated,
    insert_or_rename,
    queries,
    query_values,
)
from sparklag_schemas import Observation
from sparklag_schemas.runtime.logs import log_fields
from sparklag_schemas.text.locations import shown_url

_log = logging.getLogger("sparklag.offsets")
_DATABASES: Final = ("sqlite", "postgresql", "mysql", "mariadb")
_NO_TABLE: Final = re.compile(r"no such table: sparklag|sparklag_\w+\W+(does not|doesn't) exist")
_RECENT_BATCHES: Final = 1_000
"""A run that is further behind is detected by its batch id."""


def prepare(engine: Engine) -> None:
    """Create the tables, or migrate older ones. Concurrent calls are safe. Raises StoreError."""
    if not isinstance(engine, Engine):
        raise UnusableStore(f"it takes a synchronous sqlalchemy.Engine, got {_type(engine)}")
    shown = _require_usable(engine)
    with errors_translated(shown):
        with engine.begin() as connection:
            if database.is_newest(connection, shown):
                return
        with database.UPGRADING, engine.begin() as connection:
            database.upgrade(connection, shown)


def record_batch(connection: Connection, observation: Observation, topic_id_of: TopicIdOf) -> bool:
    """Record a batch that is about to be written, as part of the transaction of `connection`.

    Returns whether to write the batch: False if it is already recorded, and so written. Missing
    batches before it are recorded as one record, with a warning in the log. Raises StoreError;
    BatchConflict where it is not the next batch: nothing may be written then.
    """
    shown = _require_usable(connection)
    try:
        with errors_translated(shown):
            return _record(connection, observation, topic_id_of)
    except StoreAway as error:
        if _NO_TABLE.search(str(error)):
            raise StoreAway(f"{error}: prepare_store() makes the tables, once") from error
        raise


def require_connection(connection: Any) -> None:
    """Raise UnusableStore where it is not a connection."""
    if not isinstance(connection, Connection):
        raise UnusableStore(
            f"it takes a sqlalchemy.Connection, as engine.begin() gives, got {_type(connection)}"
        )


def _record(connection: Connection, observation: Observation, topic_id_of: TopicIdOf) -> bool:
    key, newest = _locked(connection, observation)
    if newest is not None:
        if newest.run_id != observation.run_id and _has_run(connection, key, observation.run_id):
            raise _conflict(
                observation,
                f"run {observation.run_id} continues after run {newest.run_id} has followed it",
            )
        if _is_recorded(observation, newest):
            return False
    sequence = BatchSequence(newest, observation.run_id)
    added = next_records(observation, sequence, topic_id_of)
    if not added.records:
        raise NoKafkaOffsets(
            f"query {observation.display_name}: batch {observation.batch_id} has no Kafka offsets"
        )
    try:
        connection.execute(batches.insert(), [batch_values(each, key) for each in added.records])
    except IntegrityError as error:
        raise _conflict(
            observation, f"another driver has just recorded batch {observation.batch_id}"
        ) from error
    for record in added.records:
        if record.is_inferred:
            _log.warning(
                "sparklag: query %s: batches %d to %d were not recorded with their results",
                *(observation.display_name, record.first_batch_id, record.batch_id),
                extra=log_fields(observation),
            )
    return True


def _locked(connection: Connection, observation: Observation) -> tuple[int, BatchRecord | None]:
    """The key of the query's row, locked, and its last record."""
    is_query = queries.c.query_id == observation.query_id
    values = query_values(observation)
    upsert = insert_or_rename(connection.dialect.name)
    row = select(queries.c.query_key).where(is_query)
    # The first statement takes the lock, SQLite's too. An upsert consumes a value of the key's
    # sequence also for an existing row, so it is used only where the row is likely missing.
    if observation.batch_id == 0:
        connection.execute(upsert, values)
    else:
        connection.execute(update(queries).where(is_query).values(name=values["name"]))
    key = connection.execute(row).scalar()
    if key is None:
        connection.execute(upsert, values)
        key = connection.execute(row).scalar_one()
    # By the key: joined by its id, all rows of the query would be sorted.
    statement = RECORDS.where(batches.c.query_key == key).order_by(*NEWEST_FIRST).limit(1)
    newest = connection.execute(statement).first()
    return key, BatchRecord(**newest._mapping) if newest is not None else None


def _has_run(connection: Connection, key: int, run_id: str | None) -> bool:
    """Return whether that run has recorded one of the recent batches."""
    recent = select(batches.c.run_id).where(batches.c.query_key == key)
    runs = recent.order_by(*NEWEST_FIRST).limit(_RECENT_BATCHES).subquery()
    statement = select(runs.c.run_id).where(runs.c.run_id == run_id).limit(1)
    return connection.execute(statement).first() is not None


def _is_recorded(observation: Observation, newest: BatchRecord) -> bool:
    """Return whether the batch is the newest. Raises BatchConflict where it is not the next."""
    batch_id = observation.batch_id
    assert batch_id is not None
    if batch_id < newest.batch_id:
        raise _conflict(observation, f"batch {batch_id} comes after batch {newest.batch_id}")
    if batch_id == newest.batch_id:
        if end_offsets_of(observation) == newest.end_offsets():
            return True
        raise _conflict(
            observation,
            f"batch {batch_id} is recorded already, by run {newest.run_id}, with other ends",
        )
    if batch_id == newest.batch_id + 1:
        _require_contiguous(observation, newest)
    return False


def _require_contiguous(observation: Observation, newest: BatchRecord) -> None:
    ended = newest.end_offsets()
    for source in observation.sources:
        for topic, partitions in (source.began or {}).items():
            before = ended.get((source.source, topic), {})
            for partition, began in partitions.items():
                if before.get(partition, began) != began:
                    raise _conflict(
                        observation,
                        f"batch {observation.batch_id} begins at {topic}[{partition}] {began:,},"
                        f" and batch {newest.batch_id} ended at {before[partition]:,}",
                    )


def _conflict(observation: Observation, what: str) -> BatchConflict:
    name = observation.display_name
    return BatchConflict(
        f"query {name}: {what}: two drivers run the query, or its checkpoint went back. Nothing of"
        " this batch may be written. End all drivers but one; if this one is to go on, begin with a"
        f" new checkpoint at starting_offsets({name!r}, store=…)"
    )


def _require_usable(bound: Engine | Connection) -> str:
    """The database's URL in messages. Raises UnusableStore."""
    shown = shown_url(bound.engine.url.render_as_string(hide_password=True))
    # The level that create_engine was given has no public name.
    engine_level = getattr(bound.dialect, "_on_connect_isolation_level", None)
    if bound.get_execution_options().get("isolation_level", engine_level) == "AUTOCOMMIT":
        raise UnusableStore(f"{shown}: with AUTOCOMMIT there is no transaction")
    if bound.dialect.name not in _DATABASES:
        raise UnusableStore(
            f"{shown} cannot hold an offset store: it is in SQLite, PostgreSQL, MySQL or MariaDB"
        )
    return shown


def _type(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__name__}"

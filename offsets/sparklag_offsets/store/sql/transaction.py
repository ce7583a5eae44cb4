"""A batch's record in the transaction that writes what the batch gave: both are there, or neither.

Who writes for a query holds the lock on its row until the transaction ends, so what is found is the
newest. Where a transaction began to read before it had the lock (MySQL's repeatable read), the
primary key of the batches refuses what somebody else has recorded since.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final

from sqlalchemy import Connection, Engine, select, update
from sqlalchemy.exc import IntegrityError

from sparklag_offsets.errors import BatchConflict, NoKafkaOffsets, StoreAway, UnusableStore
from sparklag_offsets.store.batch_record import BatchRecord
from sparklag_offsets.store.chain import Chain, TopicIdOf, ends_of, link
from sparklag_offsets.store.sql import schema
from sparklag_offsets.store.sql.failures import explained
from sparklag_offsets.store.sql.rows import batch_values, query_values, record_of, select_records
from sparklag_offsets.store.sql.tables import batches, queries
from sparklag_offsets.store.sql.upserts import insert_or_rename
from sparklag_schemas import Observation
from sparklag_schemas.redaction import shown_url

_log = logging.getLogger("sparklag")
_DATABASES: Final = ("sqlite", "postgresql", "mysql", "mariadb")
_NO_TABLE: Final = re.compile(r"no such table: sparklag|sparklag_\w+\W+(does not|doesn't) exist")
_RECENT: Final = 1_000
"""Batches. A run that others have left further behind is found out by its batch's number."""
_NEWEST_FIRST: Final = (batches.c.generation.desc(), batches.c.batch_id.desc())


def prepare(engine: Engine) -> None:
    """Make the tables, or bring older ones up to date. Several may do it at once. Raises
    StoreError."""
    if not isinstance(engine, Engine):
        raise UnusableStore(f"it takes a synchronous sqlalchemy.Engine, got {_type(engine)}")
    shown = _require_usable(engine)
    with explained(shown):
        with engine.begin() as connection:
            if schema.is_newest(connection, shown):
                return
        with schema.UPGRADING, engine.begin() as connection:
            schema.upgrade(connection, shown)


def keep(connection: Connection, observation: Observation, topic_id_of: TopicIdOf) -> bool:
    """Record a batch that is about to be written, as part of the transaction of `connection`.

    Whether it is to be written: False for one that is recorded already as it is, and so written.
    Batches before it that nobody recorded are recorded too, as one, with a warning in the log.
    Raises BatchConflict where it is not what comes next: nothing may be written then. StoreError.
    """
    shown = _require_usable(connection)
    try:
        with explained(shown):
            return _keep(connection, observation, topic_id_of)
    except StoreAway as error:
        if _NO_TABLE.search(str(error)):
            raise StoreAway(f"{error}: prepare_store() makes the tables, once") from error
        raise


def require_connection(connection: Any) -> None:
    """Raise UnusableStore where it is something else."""
    if not isinstance(connection, Connection):
        raise UnusableStore(
            f"it takes a sqlalchemy.Connection, as engine.begin() gives, got {_type(connection)}"
        )


def _keep(connection: Connection, observation: Observation, topic_id_of: TopicIdOf) -> bool:
    key, newest = _locked(connection, observation)
    if newest is not None:
        if newest.run_id != observation.run_id and _has_run(connection, key, observation.run_id):
            raise _conflict(
                observation,
                f"run {observation.run_id} goes on though run {newest.run_id} has followed it",
            )
        if _is_recorded(observation, newest):
            return False
    added = link(observation, Chain(newest, observation.run_id), topic_id_of)
    if not added.records:
        raise NoKafkaOffsets(
            f"query {_name(observation)}: batch {observation.batch_id} has no offsets of Kafka"
        )
    try:
        connection.execute(batches.insert(), [batch_values(each, key) for each in added.records])
    except IntegrityError as error:
        raise _conflict(
            observation, f"somebody else has just recorded batch {observation.batch_id}"
        ) from error
    for record in added.records:
        if record.is_inferred:
            _log.warning(
                "sparklag: query %s: batches %d to %d were not recorded with what they wrote",
                _name(observation),
                record.first_batch_id,
                record.batch_id,
            )
    return True


def _locked(connection: Connection, observation: Observation) -> tuple[int, BatchRecord | None]:
    """The key of the query's row, locked, and its last record."""
    mine = queries.c.query_id == observation.query_id
    values = query_values(observation.query_id, observation.query, observation.cluster)
    upsert = insert_or_rename(connection.dialect.name)
    row = select(queries.c.query_key).where(mine)
    # The first statement takes the lock, SQLite's too. An upsert takes a number of the key's
    # sequence each time, also for a row that is there: so only where it is likely not to be.
    if observation.batch_id == 0:
        connection.execute(upsert, values)
    else:
        connection.execute(update(queries).where(mine).values(name=values["name"]))
    key = connection.execute(row).scalar()
    if key is None:
        connection.execute(upsert, values)
        key = connection.execute(row).scalar_one()
    # By the key, as all lookups: joined by its id, all that there is of the query would be sorted.
    newest = select_records().where(batches.c.query_key == key).order_by(*_NEWEST_FIRST).limit(1)
    found = connection.execute(newest).first()
    return key, record_of(found) if found is not None else None


def _has_run(connection: Connection, key: int, run_id: str | None) -> bool:
    """Whether that run has recorded one of the last batches."""
    recent = select(batches.c.run_id).where(batches.c.query_key == key)
    runs = recent.order_by(*_NEWEST_FIRST).limit(_RECENT).subquery()
    found = select(runs.c.run_id).where(runs.c.run_id == run_id).limit(1)
    return connection.execute(found).first() is not None


def _is_recorded(observation: Observation, newest: BatchRecord) -> bool:
    """Whether the batch is the newest. Raises BatchConflict where it does not follow it either."""
    batch_id = observation.batch_id
    assert batch_id is not None
    if batch_id < newest.batch_id:
        raise _conflict(observation, f"batch {batch_id} comes after batch {newest.batch_id}")
    if batch_id == newest.batch_id:
        if ends_of(observation) == newest.until():
            return True
        raise _conflict(
            observation,
            f"batch {batch_id} is recorded already, by run {newest.run_id}, with other ends",
        )
    if batch_id == newest.batch_id + 1:
        _require_contiguous(observation, newest)
    return False


def _require_contiguous(observation: Observation, newest: BatchRecord) -> None:
    ended = newest.until()
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
    name = _name(observation)
    return BatchConflict(
        f"query {name}: {what}: two drivers run the query, or its checkpoint went back. Nothing of"
        " this batch may be written. End all drivers but one; if this one is to go on, begin with a"
        f" new checkpoint at starting_offsets({name!r}, store=…)"
    )


def _name(observation: Observation) -> str:
    return observation.query or observation.query_id


def _require_usable(bound: Engine | Connection) -> str:
    """How the database is shown. Raises UnusableStore."""
    shown = shown_url(bound.engine.url.render_as_string(hide_password=True))
    # What create_engine was given is kept under no public name.
    of_engine = getattr(bound.dialect, "_on_connect_isolation_level", None)
    if bound.get_execution_options().get("isolation_level", of_engine) == "AUTOCOMMIT":
        raise UnusableStore(f"{shown}: with AUTOCOMMIT there is no transaction")
    if bound.dialect.name not in _DATABASES:
        raise UnusableStore(
            f"{shown} cannot hold an offset store: it is in SQLite, PostgreSQL, MySQL or MariaDB"
        )
    return shown


def _type(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__name__}"

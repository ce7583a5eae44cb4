"""Positions in the offset store: starts a query at one, or records one in a transaction."""

from __future__ import annotations

import logging
from collections.abc import Collection
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import aclosing, suppress
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, get_args

from sparklag_kafka.access import quiet_client_logs
from sparklag_listener.background_loop import run_on_own_loop
from sparklag_listener.classic.running_batch import observe_batch
from sparklag_offsets.errors import RestoreError, StoreMissing, UnknownQuery, UnusableStore
from sparklag_offsets.restore.positions import OnDeleted
from sparklag_offsets.restore.restoration import (
    RestoredOffsets,
    RestoreOptions,
    from_checkpoint,
    from_store,
)
from sparklag_offsets.store import open_store
from sparklag_offsets.topic_ids import TopicIds
from sparklag_schemas import Settings, load_settings
from sparklag_schemas.errors import install_command
from sparklag_schemas.timestamps import datetime_ms, epoch_ms, timestamp_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from sqlalchemy import Connection, Engine

At = str | int | datetime | timedelta
_log = logging.getLogger("sparklag")
_TOPIC_IDS_S: Final = 1.0
"""A batch waits this long for Kafka, at most every `metadata_interval_s`."""
_CANCEL_S: Final = 0.2


def starting_offsets(
    query: str | None = None,
    *,
    store: str | None = None,
    checkpoint: str | None = None,
    at: At | None = None,
    source: int | None = None,
    topics: Collection[str] | None = None,
    on_deleted: OnDeleted = "error",
    default: str | None = None,
    bootstrap_servers: str | None = None,
    config: str | Path | None = None,
    **settings: Any,
) -> str:
    """Spark's `startingOffsets` JSON: a query's position, for a new checkpoint to start at.

    `query`: its name or id, in the offset store at `store` (None: setting `store.url`).
    `checkpoint`: instead of `query`, its checkpoint: after the newest committed batch.
    `at`: after the last batch that completed by this time, instead of the last: a datetime, epoch
    milliseconds or ISO 8601 (without a zone: UTC), or an age: `"-2h"`, a timedelta.
    `source`: which of its Kafka sources, as Spark numbers them, where it has several.
    `topics`: of the new query; None: of the recorded one.
    `on_deleted`: where retention has deleted the next records, "error", or "earliest" with a
    warning in the log; "unchecked" sends no request to Kafka. Partitions added since start at
    earliest.
    `default`: returned where the query is not recorded yet, as `"earliest"`, for its first start.
    None: that is an error.
    `bootstrap_servers`: of the topics; None: as the query read them, or the setting.
    `settings`: any field of `Settings`, over `config` (a TOML file) and the environment.

    Blocks. Raises OffsetsError (query or time not recorded; the topic was recreated; retention;
    the database is away), KafkaUnavailable, SettingsError.
    """
    options = RestoreOptions("starting", on_deleted, source, topics, bootstrap_servers)
    try:
        return _restored_json(query, store, checkpoint, at, options, config, settings)
    except (UnknownQuery, StoreMissing) as error:
        if default is None:
            raise
        _log.warning("sparklag: %s: the query starts at %s", error, default)
        return default


def ending_offsets(
    query: str | None = None,
    *,
    store: str | None = None,
    checkpoint: str | None = None,
    at: At | None = None,
    source: int | None = None,
    topics: Collection[str] | None = None,
    on_deleted: OnDeleted = "error",
    bootstrap_servers: str | None = None,
    config: str | Path | None = None,
    **settings: Any,
) -> str:
    """Spark's `endingOffsets` JSON, for a batch read that ends at a query's position.

    The arguments are those of `starting_offsets`, which gives the start of the window. A partition
    added since ends at its start: it is not in the window.
    """
    options = RestoreOptions("ending", on_deleted, source, topics, bootstrap_servers)
    return _restored_json(query, store, checkpoint, at, options, config, settings)


def _restored_json(
    query: str | None,
    store: str | None,
    checkpoint: str | None,
    at: At | None,
    options: RestoreOptions,
    config: str | Path | None,
    settings: dict[str, Any],
) -> str:
    name = f"{options.edge}_offsets()"
    if (query is None) == (checkpoint is None):
        raise RestoreError(f"{name} takes a query, or checkpoint=, and not both")
    if checkpoint is not None and (store is not None or at is not None):
        raise RestoreError(f"{name}: checkpoint= excludes store= and at=")
    if options.on_deleted not in get_args(OnDeleted):
        *most, last = get_args(OnDeleted)
        raise RestoreError(f"{name}: on_deleted takes {', '.join(most)} or {last}")
    at_ms = _at_ms(name, at)
    quiet_client_logs()
    loaded = load_settings(
        config=Path(config) if config is not None else None,
        overrides={"store": {"url": store} if store is not None else None, **settings},
    )
    if checkpoint is not None:
        restored = run_on_own_loop(from_checkpoint(checkpoint, options, loaded))
    elif loaded.store.url is None:
        raise RestoreError(f"{name} needs store=, or setting store.url: the offset store")
    else:
        restoring = _from_store(loaded.store.url, query or "", at_ms, options, loaded)
        restored = run_on_own_loop(restoring)
    for warning in restored.warnings:
        _log.warning("sparklag: %s", warning)
    return restored.json


async def _from_store(
    url: str, query: str, at_ms: int | None, options: RestoreOptions, settings: Settings
) -> RestoredOffsets:
    async with aclosing(open_store(url)) as store:
        return await from_store(store, query, at_ms, options, settings)


def _at_ms(name: str, at: At | None) -> int | None:
    if at is None or isinstance(at, int):
        return at
    if isinstance(at, datetime):
        return datetime_ms(at)
    if isinstance(at, timedelta):
        # Either sign: the time cannot be in the future.
        return epoch_ms() - abs(round(at.total_seconds() * 1000))
    try:
        return timestamp_ms(at, epoch_ms())
    except (ValueError, TypeError) as error:
        raise RestoreError(f"{name}: at={at!r}: {error}") from error


def prepare_store(engine: Engine) -> None:
    """Create or migrate the offset store's tables in the database of `engine`.

    Once, before the query starts. Several drivers may do it at once. Raises StoreError.
    """
    _sql().prepare(engine)


def keep_offsets(transaction: Connection, batch: DataFrame, batch_id: int) -> bool:
    """Record the offsets of this batch in `transaction`; returns whether to write the batch.

    Call it in foreachBatch's function, first in the transaction that writes the results, with its
    `batch` and `batch_id`. False: the batch was written already, before a crash, and must not be
    written again. Drivers of the same query wait here for each other.

    Raises BatchConflict where another driver runs the query or its checkpoint went back, NotInBatch
    and UnsupportedSession where it is called elsewhere, CheckpointError where Spark's own offsets
    cannot be read, StoreError where the database fails. The batch must not be written then either.
    """
    sql = _sql()
    sql.require_connection(transaction)
    settings, topic_ids = _process_settings()
    observation = observe_batch(batch, batch_id, settings.cluster)
    if topic_ids.needs_refresh([observation]):
        # The batch is recorded without ids that arrive too late.
        with suppress(FutureTimeoutError):
            run_on_own_loop(topic_ids.refresh([observation]), _TOPIC_IDS_S + _CANCEL_S)
    is_new: bool = sql.record_batch(transaction, observation, topic_ids.get)
    return is_new


def _sql() -> ModuleType:
    try:
        from sparklag_offsets.store.sql import transaction
    except ModuleNotFoundError as error:
        raise UnusableStore(
            f"an offset store needs {error.name}, of sqlite, postgresql or mysql:"
            f" {install_command('sqlite')}"
        ) from error
    return transaction


@lru_cache(maxsize=1)
def _process_settings() -> tuple[Settings, TopicIds]:
    """The settings and topic ids that all batches of this process share."""
    settings = load_settings()
    return settings, TopicIds(settings, _TOPIC_IDS_S)

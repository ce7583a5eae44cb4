"""`keep_offsets`: a batch's offsets in the transaction that writes its results."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Final

from sparklag_listener.publishing.background_loop import BackgroundLoop
from sparklag_listener.running_batch import observe_batch
from sparklag_offsets.errors import UnusableStore
from sparklag_offsets.topic_ids import TopicIds
from sparklag_schemas import Observation, Settings, load_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from sqlalchemy import Connection, Engine

_TOPIC_IDS_S: Final = 1.0
"""So long a batch waits for Kafka, at most every `metadata_interval_s`."""
_STOP_S: Final = 0.2


def prepare_store(engine: Engine) -> None:
    """Make the offset store's tables in the database of `engine`, before the query starts.

    Once: what is there already is brought up to date. Several drivers may do it at once.
    Raises StoreError.
    """
    _sql().prepare(engine)


def keep_offsets(transaction: Connection, batch: DataFrame, batch_id: int) -> bool:
    """Record where this batch begins and ends, within `transaction`; whether it is to be written.

    For foreachBatch's function, first thing in the transaction that writes the results; `batch` and
    `batch_id` are what it was called with. False: the batch was written already, before a crash,
    and nothing of it may be written again. Drivers of one query wait here for each other.

    Raises BatchConflict where another driver runs the query or its checkpoint went back, NotInBatch
    and UnsupportedSession where it is called elsewhere, CheckpointError where Spark's own offsets
    cannot be read, StoreError where the database fails. Nothing may be written then either.
    """
    sql = _sql()
    sql.require_connection(transaction)
    known = _known()
    observation = observe_batch(batch, batch_id, known.settings.cluster)
    known.learn([observation])
    kept: bool = sql.record_batch(transaction, observation, known.ids.get)
    return kept


def _sql() -> ModuleType:
    try:
        from sparklag_offsets.store.sql import transaction
    except ModuleNotFoundError as error:
        raise UnusableStore(
            f"an offset store needs {error.name}: pip install 'sparklag[sqlite]', or 'postgresql',"
            " 'mysql'"
        ) from error
    return transaction


class _Known:
    """What every batch needs besides its own transaction."""

    def __init__(self) -> None:
        self.settings: Settings = load_settings()
        self.ids = TopicIds(self.settings, _TOPIC_IDS_S)

    def learn(self, observations: Sequence[Observation]) -> None:
        """Ask for topics' ids, where it is time to; what is not known in time is not known."""
        if not self.ids.needs_refresh(observations):
            return
        loop = BackgroundLoop()
        try:
            with suppress(FutureTimeoutError):
                loop.submit(self.ids.refresh(observations)).result(_TOPIC_IDS_S + _STOP_S)
        finally:
            loop.stop(_STOP_S)


@lru_cache(maxsize=1)
def _known() -> _Known:
    return _Known()

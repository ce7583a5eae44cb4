"""`keep_offsets`: records a batch's offsets in the transaction that writes its results."""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Final

from sparklag_listener.background_loop import run_on_own_loop
from sparklag_listener.classic.running_batch import observe_batch
from sparklag_offsets.errors import UnusableStore
from sparklag_offsets.topic_ids import TopicIds
from sparklag_schemas import Observation, Settings, load_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from sqlalchemy import Connection, Engine

_TOPIC_IDS_S: Final = 1.0
"""A batch waits so long for Kafka, at most every `metadata_interval_s`."""
_CANCEL_S: Final = 0.2


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
    context = _context()
    observation = observe_batch(batch, batch_id, context.settings.cluster)
    context.refresh_topic_ids(observation)
    is_new: bool = sql.record_batch(transaction, observation, context.topic_ids.get)
    return is_new


def _sql() -> ModuleType:
    try:
        from sparklag_offsets.store.sql import transaction
    except ModuleNotFoundError as error:
        raise UnusableStore(
            f"an offset store needs {error.name}: pip install 'sparklag[sqlite]', or 'postgresql',"
            " 'mysql'"
        ) from error
    return transaction


class _Context:
    """Shared by all batches of this process."""

    def __init__(self) -> None:
        self.settings: Settings = load_settings()
        self.topic_ids = TopicIds(self.settings, _TOPIC_IDS_S)

    def refresh_topic_ids(self, observation: Observation) -> None:
        """Request the ids of its topics, when due; the batch is recorded without late ones."""
        if not self.topic_ids.needs_refresh([observation]):
            return
        with suppress(FutureTimeoutError):
            run_on_own_loop(self.topic_ids.refresh([observation]), _TOPIC_IDS_S + _CANCEL_S)


@lru_cache(maxsize=1)
def _context() -> _Context:
    return _Context()

"""The errors of this package: of the store, of restoring, and of checkpoints."""

from __future__ import annotations

from sparklag_schemas import SparklagError


class OffsetsError(SparklagError):
    """Offsets cannot be read, stored or restored; the text has the reason."""


class StoreError(OffsetsError):
    """The offset store failed; the text names it, without credentials."""


class UnusableStore(StoreError):
    """The URL is invalid or of an unknown kind, or the package for it is not installed."""


class StoreMissing(UnusableStore):
    """The SQLite file does not exist: nothing has been recorded there yet."""


class StoreAway(StoreError):
    """The database cannot be reached, does not respond, refuses access, or is full."""


class Deadlock(StoreAway):
    """The database has rolled back one of two transactions that waited for each other."""


class RecordRefused(StoreError):
    """The database never accepts this record: it is too long, or not valid text."""


class NewerSchema(StoreError):
    """A newer sparklag has migrated the tables."""

    def __init__(self, store: str, schema: object, newest: object) -> None:
        super().__init__(
            f"the offset store at {store} has schema {schema}, and this sparklag knows those up to"
            f" {newest}: a newer sparklag made it, upgrade this one"
        )


class BatchConflict(StoreError):
    """Two drivers run the query, or its checkpoint went back: nothing of the batch may be written;
    the text has the remedy."""


class NoKafkaOffsets(StoreError):
    """The batch read nothing from Kafka, so it has no offsets to record."""


class RestoreError(OffsetsError):
    """A query's position cannot be restored; the text has the reason."""


class UnknownQuery(RestoreError):
    """No query of that name or id is recorded."""


class AmbiguousQuery(RestoreError):
    """Several queries had that name at the same time, or several ids begin with it."""

    def __init__(self, text: str, query_ids: list[str]) -> None:
        super().__init__(text)
        self.query_ids = query_ids


class BeforeFirstBatch(RestoreError):
    """No recorded batch had completed by the requested time."""


class SourceNotNamed(RestoreError):
    """The query has several Kafka sources, or lacks the requested one."""


class PositionDeleted(RestoreError):
    """Retention has deleted the next records."""


class TopicChanged(RestoreError):
    """The topic was deleted or recreated: the offsets are of the earlier topic."""


class CheckpointError(OffsetsError):
    """A checkpoint cannot be read; the text begins with its location, without credentials."""


class CheckpointNotFound(CheckpointError):
    """There is no checkpoint at the location."""


class CheckpointGone(CheckpointError):
    """The checkpoint was there before; it was deleted, or is being deleted."""


class MalformedCheckpoint(CheckpointError):
    """A file of the checkpoint is broken; the text names it."""


class UnsupportedCheckpoint(CheckpointError):
    """A file of the checkpoint has a format from a newer Spark; the text names both."""


class CheckpointAway(CheckpointError):
    """The store cannot be used: rights, credentials, bucket, network, a missing package."""

"""The errors of this package.

OffsetsError
├── StoreError                 of the offset store
│   ├── UnusableStore          a URL that is none, or whose package is missing
│   │   └── StoreMissing       an SQLite file that is not there
│   ├── StoreAway              it cannot be reached, does not answer, or refuses
│   │   └── Deadlock           it ended one of two transactions that waited for each other
│   ├── StoreFull              it has no room
│   ├── RecordRefused          it does not take what is to be written
│   ├── NewerSchema            a newer sparklag has changed its tables
│   ├── BatchConflict          a batch is not what comes after those that are recorded
│   └── NoKafkaOffsets         a batch has none
├── RestoreError               a query cannot be put back to where it was
│   ├── UnknownQuery           nothing is kept of it
│   ├── AmbiguousQuery         several have the name
│   ├── BeforeFirstBatch       it had not completed a batch by then
│   ├── SourceNotNamed         it has several sources, or not the one that is asked for
│   ├── PositionDeleted        retention has deleted what comes next
│   └── TopicChanged           the topic is gone, or was created anew
└── CheckpointError            of one checkpoint, or one place where they are kept
    ├── CheckpointNotFound     no such folder, not a checkpoint, nothing that matches
    ├── CheckpointGone         it was there: it is being deleted, or was
    ├── MalformedCheckpoint    a file in it is broken
    ├── UnsupportedCheckpoint  a file in it has a format from the future
    └── CheckpointAway         its store refuses, does not answer, or cannot be reached from here
"""

from __future__ import annotations

from sparklag_schemas import SparklagError


class OffsetsError(SparklagError):
    """Offsets cannot be read, kept or given back; the text says why."""


class CheckpointError(OffsetsError):
    """A checkpoint cannot be read; the text begins with its location, without credentials."""


class CheckpointNotFound(CheckpointError):
    """There is no checkpoint there."""


class CheckpointGone(CheckpointError):
    """There was a checkpoint, and now it is not whole, or not there."""


class MalformedCheckpoint(CheckpointError):
    """A file of it is not what Spark writes; the text names it."""


class UnsupportedCheckpoint(CheckpointError):
    """A file of it has a format that this sparklag does not know; the text names both."""


class CheckpointAway(CheckpointError):
    """Its store cannot be used: rights, credentials, bucket, network, a missing package."""


class StoreError(OffsetsError):
    """The offset store cannot do what was asked; the text names it, without credentials."""


class UnusableStore(StoreError):
    """The URL is none, its kind is not known, or the package for it is not here."""


class StoreMissing(UnusableStore):
    """There is no such SQLite file: nobody has recorded anything there yet."""


class StoreAway(StoreError):
    """The database cannot be reached, does not answer, or refuses."""


class Deadlock(StoreAway):
    """Two transactions waited for each other, and the database has undone this one."""


class StoreFull(StoreError):
    """The database has no room."""


class RecordRefused(StoreError):
    """The database does not take what is to be written, however often: too long, or no text."""


class NewerSchema(StoreError):
    """A newer sparklag has changed the tables."""


class RestoreError(OffsetsError):
    """A query cannot be put back to where it was; the text says why."""


class UnknownQuery(RestoreError):
    """Nothing is kept of a query of that name or id."""


class AmbiguousQuery(RestoreError):
    """Several queries of that name completed batches at the same time."""

    def __init__(self, text: str, query_ids: list[str]) -> None:
        super().__init__(text)
        self.query_ids = query_ids


class BeforeFirstBatch(RestoreError):
    """No batch is kept that completed by then."""


class SourceNotNamed(RestoreError):
    """The query has several Kafka sources, or not the one that is asked for."""


class PositionDeleted(RestoreError):
    """Retention has deleted what comes next."""


class TopicChanged(RestoreError):
    """The topic is gone, or was created anew: the offsets are of another life."""


class BatchConflict(StoreError):
    """Two drivers run the query, or its checkpoint went back: nothing of the batch may be written;
    the text says what to do."""


class NoKafkaOffsets(StoreError):
    """The batch read nothing from Kafka: there is nothing to record it by."""

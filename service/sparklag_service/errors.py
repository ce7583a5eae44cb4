"""The errors of this package.

ServiceError
├── PortInUse
├── ReadingInterrupted
└── CheckpointError           of one checkpoint, or one place where they are kept
    ├── CheckpointNotFound    no such folder, not a checkpoint, nothing that matches
    ├── CheckpointGone        it was there: it is being deleted, or was
    ├── MalformedCheckpoint   a file in it is broken
    ├── UnsupportedCheckpoint a file in it has a format from the future
    └── StoreUnavailable      the store refuses, does not answer, or cannot be reached from here
"""

from __future__ import annotations

from sparklag_schemas import SparklagError


class ServiceError(SparklagError):
    """The service cannot do what was asked; the text says why."""


class PortInUse(ServiceError):
    """The HTTP port is taken."""


class ReadingInterrupted(ServiceError):
    """A topic must be read from anew: it was deleted, or this process stood still."""


class CheckpointError(ServiceError):
    """A checkpoint cannot be read; the text begins with its location, without credentials."""


class CheckpointNotFound(CheckpointError):
    """There is no checkpoint there."""


class CheckpointGone(CheckpointError):
    """There was a checkpoint, and now it is not whole, or not there."""


class MalformedCheckpoint(CheckpointError):
    """A file of it is not what Spark writes; the text names it."""


class UnsupportedCheckpoint(CheckpointError):
    """A file of it has a format that this sparklag does not know; the text names both."""


class StoreUnavailable(CheckpointError):
    """The store cannot be used: rights, credentials, bucket, network, a missing package."""

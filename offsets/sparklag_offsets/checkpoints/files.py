"""The files of one checkpoint as the reader sees them, in any store."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from sparklag_offsets.errors import MalformedCheckpoint

Log = Literal["offsets", "commits"]
MAX_FILE_BYTES: Final = 8 * 1024 * 1024
"""A file with the offsets of 100,000 partitions has 2 MB, and more where topics are many."""


@dataclass(frozen=True)
class FileInfo:
    """Tells a file from another one of the same name."""

    modified_ms: int | None
    size: int | None
    version: Hashable = None


@dataclass(frozen=True)
class Listing:
    """The batches in one of the two logs."""

    batch_ids: list[int]
    """In rising order. The files may have been deleted since."""
    info: Callable[[int], FileInfo | None]
    """Of a batch's file; may read it only now. None: the file is gone, or was not listed."""


class CheckpointFiles(Protocol):
    """Blocking; for one thread at a time. Every method raises CheckpointAway."""

    location: str
    """Normal, and without credentials."""
    lists_cheaply: bool
    """Whether listing costs as little as reading: then both logs are listed at each poll."""

    def start_poll(self) -> None:
        """Start a poll: its calls share one deadline."""

    def list_log(self, log: Log) -> Listing:
        """Its batches now; an empty listing where the folder is missing. A store that reports
        changes cheaply may return the last listing."""

    def is_unchanged(self) -> bool:
        """Whether both logs are as they were last listed. False where the store does not tell."""

    def forget_listings(self) -> None:
        """List again at the next call."""

    def read(self, name: str) -> bytes:
        """`metadata`, `offsets/5`: at most MAX_FILE_BYTES. Raises FileNotFoundError,
        MalformedCheckpoint."""


def file_too_long(name: str) -> MalformedCheckpoint:
    """The error for a file of more than MAX_FILE_BYTES."""
    return MalformedCheckpoint(
        f"{name} has more than {MAX_FILE_BYTES:,} bytes, and Spark writes no file so long"
    )

"""How the reader sees the files of one checkpoint, wherever they are."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from sparklag_offsets.errors import MalformedCheckpoint

Log = Literal["offsets", "commits"]
LONGEST_FILE: Final = 32 * 1024 * 1024
"""Bytes. Those of a million partitions are shorter."""


@dataclass(frozen=True)
class FileFacts:
    """What tells a file from another of the same name, and when it was written (epoch ms)."""

    modified_ms: int | None
    size: int | None
    mark: Hashable = None


class Listing(Protocol):
    """The batches of one of the two logs."""

    @property
    def numbers(self) -> list[int]:
        """In rising order. The files may be gone by now."""

    def facts(self, number: int) -> FileFacts | None:
        """None: it is gone, or was not listed."""


class CheckpointFiles(Protocol):
    """Blocking; for one thread at a time. Every method raises CheckpointAway."""

    location: str
    """Normal, and without credentials."""
    lists_cheaply: bool
    """Whether listing is as cheap as reading: then both logs are listed, and nothing guessed."""

    def begin(self) -> None:
        """A look begins: what it asks for has one deadline together."""

    def stamp(self, log: Log) -> Hashable | None:
        """Something that changes when files come or go, within a grain of some seconds. None where
        the store tells no such thing."""

    def list_log(self, log: Log) -> Listing:
        """Its batches now; none where the folder is not there."""

    def read(self, name: str) -> bytes:
        """`metadata`, `offsets/5`; no more than LONGEST_FILE is taken into memory. Raises
        FileNotFoundError, MalformedCheckpoint."""

    def explain_absence(self) -> str:
        """What is at the location where there is no checkpoint: one clause."""


@dataclass(frozen=True)
class FullListing:
    """A listing of a store that tells the facts along with the names."""

    found: Mapping[int, FileFacts]

    @property
    def numbers(self) -> list[int]:
        return sorted(self.found)

    def facts(self, number: int) -> FileFacts | None:
        return self.found.get(number)


def too_long(name: str) -> MalformedCheckpoint:
    """The error for a file of more than LONGEST_FILE."""
    return MalformedCheckpoint(
        f"{name} has more than {LONGEST_FILE:,} bytes, and Spark writes no file so long"
    )

"""Locations of checkpoints, and the files of one as the reader sees them, in any store."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from sparklag_offsets.errors import CheckpointNotFound, MalformedCheckpoint

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):(?=/)")
_HADOOP_ALIASES: Final = {"s3a": "s3", "s3n": "s3"}
LOCAL: Final = ""


def normal_location(location: str) -> str:
    """The normal form, to compare by: `file:/x`, `file:///x/` give `/x`; `s3a://` gives `s3://`.

    Idempotent. No I/O, and no decoding: Spark does not escape either.
    """
    scheme, rest = split_scheme(location)
    if scheme == LOCAL:
        return _tidy(rest)
    authority, path = "", rest
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        path = slash + path
    return f"{scheme}://{authority}{_tidy(path) if path.strip('/') else ''}"


def split_scheme(location: str) -> tuple[str, str]:
    """The scheme as fsspec calls it (LOCAL for a path), and the rest."""
    match = _SCHEME.match(location)
    if match is None:
        return LOCAL, location
    scheme, rest = match.group(1).lower(), location[match.end() :]
    if scheme in ("file", "local"):
        if rest.startswith("//") and not rest.startswith("///"):
            host, _, path = rest[2:].partition("/")
            if host in ("", "localhost"):
                rest = f"/{path}"
        # One slash: a path that itself looks like a URL must not be parsed as one again.
        return LOCAL, "/" + rest.lstrip("/")
    return _HADOOP_ALIASES.get(scheme, scheme), rest


def fixed_prefix(pattern: str) -> str | None:
    """The folder before the first `*`. None: the pattern is a path."""
    before, star, _ = normal_location(pattern).partition("*")
    return (before.rpartition("/")[0] or "/") if star else None


def match_folders(
    root: str,
    path: str,
    list_folders: Callable[[str, bool], Iterable[str]],
    display_pattern: str,
) -> list[str]:
    """Folders below `root` that match `path`, a path with `*`, each within one name.

    `list_folders` takes a folder and whether it is before the first `*`, returns the names of its
    folders, and may raise FileNotFoundError. Raises CheckpointNotFound where a folder before the
    first `*` is missing.
    """
    folders, is_fixed = [root], True
    for part in path.strip("/").split("/"):
        if "*" not in part:
            folders = [f"{folder}/{part}" for folder in folders]
            continue
        # Hidden names match only a pattern that begins with a dot, as in a shell.
        text = ".*".join(map(re.escape, part.split("*")))
        matcher = re.compile(text if part.startswith(".") else rf"(?!\.){text}", re.DOTALL)
        matched: list[str] = []
        for folder in folders:
            try:
                names = list_folders(folder, is_fixed)
            except FileNotFoundError as error:
                if is_fixed:
                    raise CheckpointNotFound(
                        f"{display_pattern}: there is no folder {folder}"
                    ) from error
                continue
            matched += [f"{folder}/{name}" for name in names if matcher.fullmatch(name)]
        folders, is_fixed = matched, False
    return sorted(folders)


def _tidy(path: str) -> str:
    return re.sub("/{2,}", "/", path).rstrip("/") or path[:1]


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

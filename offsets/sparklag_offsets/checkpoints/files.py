"""Locations of checkpoints, the interface to a checkpoint's files in any store, and its
implementation for local folders."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, Protocol, get_args

from sparklag_offsets.checkpoints.offset_log import parse_batch_id
from sparklag_offsets.errors import CheckpointAway, CheckpointNotFound, MalformedCheckpoint

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):(?=/)")
_DRIVE: Final = re.compile(r"/*([A-Za-z]:)[/\\]")
_HADOOP_ALIASES: Final = {"s3a": "s3", "s3n": "s3"}
LOCAL: Final = ""


def normal_location(location: str) -> str:
    """The normal form, to compare by: `file:/x`, `file:///x/` give `/x`; `s3a://` gives `s3://`;
    `file:/C:/x` and `C:\\x` give `C:/x`.

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
        return LOCAL, _from_drive(location)
    scheme, rest = match.group(1).lower(), location[match.end() :]
    if scheme in ("file", "local"):
        if rest.startswith("//") and not rest.startswith("///"):
            host, _, path = rest[2:].partition("/")
            if host in ("", "localhost"):
                rest = f"/{path}"
        # One slash: a path that looks like a URL must not be parsed as a URL again.
        return LOCAL, _from_drive("/" + rest.lstrip("/"))
    return _HADOOP_ALIASES.get(scheme, scheme), rest


def _from_drive(path: str) -> str:
    return path.lstrip("/").replace("\\", "/") if _DRIVE.match(path) else path


def fixed_prefix(pattern: str) -> str | None:
    """The folder before the first `*`. None: the pattern is a path."""
    before, star, _ = normal_location(pattern).partition("*")
    return (before.rpartition("/")[0] or "/") if star else None


def match_folders(
    root: str, path: str, list_folders: Callable[[str, bool], Iterable[str]], display_pattern: str
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
    """Distinguishes a file from another file with the same name."""

    modified_ms: int | None
    size: int | None
    version: Hashable = None


@dataclass(frozen=True)
class Listing:
    """The batches in one of the two logs."""

    batch_ids: list[int]
    """Numbers in rising order. The files may have been deleted since."""
    info: Callable[[int], FileInfo | None]
    """Returns the file of a batch, perhaps with I/O. None: the file is gone, or was not listed."""


class CheckpointFiles(Protocol):
    """Blocking; for one thread at a time. Every method raises CheckpointAway."""

    location: str
    """In normal form, without credentials."""
    lists_cheaply: bool
    """True: listing costs as little as reading, so both logs are listed at each poll."""

    def start_poll(self) -> None:
        """Start a poll: its calls share one deadline."""

    def list_log(self, log: Log) -> Listing:
        """The current batches of a log; none where the folder is missing. A store that detects
        changes cheaply may return the last listing."""

    def is_unchanged(self) -> bool:
        """Return whether both logs are as last listed. False: changed, or not known."""

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


_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)  # each is missing on one platform
_NO_WAIT: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_OPEN_FLAGS: Final = os.O_RDONLY | _NO_FOLLOW | _NO_WAIT
"""Opening a pipe would block for ever, and a symbolic link may lead out of the checkpoint."""
_TIME_RESOLUTION_S: Final = 2.5
"""The coarsest resolution of a file system. A folder listed sooner than this after a change may
have changed again without another modification time."""
_MAX_AGE_S: Final = 30.0
"""The client of a network file system may cache a folder's time; a listing asks the server."""

_FolderTime = tuple[int, int]
"""Modification time and inode: changes when files are added or removed."""


class LocalFiles:
    """See CheckpointFiles."""

    lists_cheaply = True

    def __init__(self, location: str, below: str | None) -> None:
        self.location = location
        self._below = None if below is None else os.path.realpath(below)
        logs: tuple[Log, ...] = get_args(Log)
        self._folders = {log: os.path.join(location, log) for log in logs}
        self._cached: dict[Log, _CachedListing] = {}

    def start_poll(self) -> None:
        """No deadline: a call that hangs in the kernel cannot be cancelled."""
        if self._below is not None and not _is_below(self.location, self._below):
            raise CheckpointNotFound(f"{self.location}: a symbolic link leads out of {self._below}")

    def list_log(self, log: Log) -> Listing:
        # Read before the listing: a later change then changes the time again.
        folder_time = self._folder_time(log)
        now_s = time.monotonic()
        cached = self._cached.get(log)
        since_s = now_s
        if cached is not None:
            if cached.is_valid(folder_time, now_s):
                return cached.listing
            if cached.folder_time == folder_time:
                since_s = cached.since_s
        listing = self._list_folder(log)
        self._cached[log] = _CachedListing(listing, folder_time, now_s, since_s)
        return listing

    def is_unchanged(self) -> bool:
        now_s = time.monotonic()
        cached = [(log, self._cached.get(log)) for log in self._folders]
        return all(c is not None and c.is_valid(self._folder_time(log), now_s) for log, c in cached)

    def forget_listings(self) -> None:
        self._cached.clear()

    def _folder_time(self, log: Log) -> _FolderTime | None:
        try:
            status = os.lstat(self._folders[log])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _away(self.location, error) from error
        return status.st_mtime_ns, status.st_ino

    def _list_folder(self, log: Log) -> Listing:
        folder = self._folders[log]
        try:
            names = [] if os.path.islink(folder) else os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            names = []
        except OSError as error:
            raise _away(self.location, error) from error
        batch_ids = (number for name in names if (number := parse_batch_id(name)) is not None)
        return Listing(sorted(batch_ids), partial(_file_info, folder))

    def read(self, name: str) -> bytes:
        path, folder = f"{self.location}/{name}", os.path.dirname(name)
        is_in_link = folder and os.path.islink(f"{self.location}/{folder}")
        if is_in_link or (not _NO_FOLLOW and os.path.islink(path)):
            raise FileNotFoundError(name)
        try:
            with open(os.open(path, _OPEN_FLAGS), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise FileNotFoundError(name)
                if status.st_size > MAX_FILE_BYTES:
                    raise file_too_long(path)
                return file.read(status.st_size)  # not what is added meanwhile
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise FileNotFoundError(name) from error
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
                raise FileNotFoundError(name) from error
            raise _away(self.location, error) from error


@dataclass(frozen=True)
class _CachedListing:
    listing: Listing
    folder_time: _FolderTime | None
    listed_at_s: float
    since_s: float
    """When the folder first had this time."""

    def is_valid(self, folder_time: _FolderTime | None, now_s: float) -> bool:
        return (
            folder_time is not None
            and self.folder_time == folder_time
            and self.listed_at_s - self.since_s > _TIME_RESOLUTION_S
            and now_s - self.listed_at_s < _MAX_AGE_S
        )


def find_local(pattern: str) -> list[str]:
    """Folders that match and have a `metadata`, or batches, sorted.

    Raises CheckpointNotFound where the folder before the first `*` is missing, CheckpointAway
    where it may not be listed.
    """
    drive = pattern[:2] if _DRIVE.match(pattern) else ""
    root = drive or ("" if pattern.startswith("/") else ".")

    def list_folders(folder: str, is_fixed: bool) -> list[str]:
        try:
            with os.scandir(f"{folder}/") as entries:  # "C:" is not the root of the drive
                return [entry.name for entry in entries if _is_folder(entry)]
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FileNotFoundError(folder) from error
        except OSError as error:
            if is_fixed:
                raise CheckpointAway(f"{pattern}: {folder}: {error.strerror}") from error
            return []

    folders = match_folders(root, pattern.removeprefix(drive), list_folders, pattern)
    below = os.path.realpath(fixed_prefix(pattern) or pattern)
    return [
        folder.removeprefix("./")
        for folder in folders
        if _is_checkpoint(folder) and _is_below(folder, below)
    ]


def _is_checkpoint(folder: str) -> bool:
    if os.path.isfile(f"{folder}/metadata"):
        return True
    with suppress(OSError):
        return any(parse_batch_id(name) is not None for name in os.listdir(f"{folder}/offsets"))
    return False


def _file_info(folder: str, batch_id: int) -> FileInfo | None:
    try:
        status = os.lstat(f"{folder}/{batch_id}")
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    version = (status.st_mtime_ns, status.st_ino)
    return FileInfo(status.st_mtime_ns // 1_000_000, status.st_size, version)


def _is_below(location: str, real_prefix: str) -> bool:
    # With all symbolic links resolved.
    real = os.path.realpath(location)
    return real == real_prefix or real.startswith(os.path.join(real_prefix, ""))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads back to itself
        return False


def _away(location: str, error: OSError) -> CheckpointAway:
    return CheckpointAway(f"{location}: {error.strerror or type(error).__name__}")

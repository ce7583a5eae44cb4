"""Checkpoints in folders of this machine, or mounted on it: plain calls of microseconds."""

from __future__ import annotations

import errno
import os
import stat
import time
from dataclasses import dataclass
from functools import partial
from typing import Final

from sparklag_offsets.checkpoints.files import (
    MAX_FILE_BYTES,
    FileInfo,
    Listing,
    Log,
    file_too_long,
    fixed_prefix,
    match_folders,
)
from sparklag_offsets.checkpoints.offset_log import parse_batch_id
from sparklag_offsets.errors import CheckpointAway, CheckpointNotFound

_OPEN_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A pipe would block for ever, and a symbolic link may lead out of the checkpoint."""
_TIME_RESOLUTION_S: Final = 2.5
"""No file system's times are coarser. A folder listed sooner than this after a change may have
changed again with the same time."""
_MAX_AGE_S: Final = 30.0
"""A mounted folder's time may be a stale value of its client; a listing asks the server."""

_FolderTime = tuple[int, int]
"""Modification time and inode: changes when files are added or removed."""


class LocalFiles:
    """See CheckpointFiles."""

    lists_cheaply = True

    def __init__(self, location: str, below: str | None) -> None:
        self.location = location
        self._below = None if below is None else os.path.realpath(below)
        self._folders: dict[Log, str] = {
            "offsets": os.path.join(location, "offsets"),
            "commits": os.path.join(location, "commits"),
        }
        self._cached: dict[Log, _CachedListing] = {}

    def start_poll(self) -> None:
        """No deadline: a call that hangs in the kernel cannot be cancelled."""
        if self._below is not None and not _is_below(self.location, self._below):
            raise CheckpointNotFound(f"{self.location}: a symbolic link leads out of {self._below}")

    def list_log(self, log: Log) -> Listing:
        # Read before the listing: a change in between changes the time again.
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
        for log in self._folders:
            cached = self._cached.get(log)
            if cached is None or not cached.is_valid(self._folder_time(log), now_s):
                return False
        return True

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
        batch_ids = [number for name in names if (number := parse_batch_id(name)) is not None]
        batch_ids.sort()
        return Listing(batch_ids, partial(_file_info, folder))

    def read(self, name: str) -> bytes:
        folder = os.path.dirname(name)
        if folder and os.path.islink(f"{self.location}/{folder}"):
            raise FileNotFoundError(name)
        try:
            with open(os.open(f"{self.location}/{name}", _OPEN_FLAGS), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise FileNotFoundError(name)
                if status.st_size > MAX_FILE_BYTES:
                    raise file_too_long(f"{self.location}/{name}")
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
    """When the folder was first seen with this time."""

    def is_valid(self, folder_time: _FolderTime | None, now_s: float) -> bool:
        return (
            folder_time is not None
            and self.folder_time == folder_time
            and self.listed_at_s - self.since_s > _TIME_RESOLUTION_S
            and now_s - self.listed_at_s < _MAX_AGE_S
        )


def find_local(pattern: str) -> list[str]:
    """Folders that match and have a `metadata`, sorted.

    Raises CheckpointNotFound where the folder before the first `*` is missing, CheckpointAway
    where it may not be listed.
    """
    root = "" if pattern.startswith("/") else "."

    def list_folders(folder: str, is_fixed: bool) -> list[str]:
        try:
            with os.scandir(folder or "/") as entries:
                return [entry.name for entry in entries if _is_folder(entry)]
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FileNotFoundError(folder) from error
        except OSError as error:
            if is_fixed:
                raise CheckpointAway(f"{pattern}: {folder}: {error.strerror}") from error
            return []

    folders = match_folders(root, pattern, list_folders, pattern)
    below = os.path.realpath(fixed_prefix(pattern) or pattern)
    return [
        folder.removeprefix("./")
        for folder in folders
        if os.path.isfile(os.path.join(folder, "metadata")) and _is_below(folder, below)
    ]


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
    """Whether it is really there, whatever symbolic links are on the way."""
    real = os.path.realpath(location)
    return real == real_prefix or real.startswith(real_prefix.rstrip("/") + "/")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads back to itself
        return False


def _away(location: str, error: OSError) -> CheckpointAway:
    return CheckpointAway(f"{location}: {error.strerror or type(error).__name__}")

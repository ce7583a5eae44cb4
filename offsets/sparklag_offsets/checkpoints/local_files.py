"""Checkpoints in folders of this machine, or mounted on it: plain calls of microseconds."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from sparklag_offsets.checkpoints.files import LONGEST_FILE, FileFacts, Log, too_long
from sparklag_offsets.checkpoints.location import fixed_prefix
from sparklag_offsets.checkpoints.offset_log import batch_number
from sparklag_offsets.errors import CheckpointAway, CheckpointNotFound

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A pipe would keep us for ever, and a symbolic link leads anywhere."""


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

    def begin(self) -> None:
        """Nothing here has a deadline: a call that hangs in the kernel cannot be left."""
        if self._below is not None and not is_below(self.location, self._below):
            raise CheckpointNotFound(f"{self.location}: a symbolic link leads out of {self._below}")

    def stamp(self, log: Log) -> Hashable | None:
        try:
            found = os.lstat(self._folders[log])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._refused(error) from error
        return (found.st_mtime_ns, found.st_ino)

    def list_log(self, log: Log) -> LocalListing:
        folder = self._folders[log]
        try:
            names = [] if os.path.islink(folder) else os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            names = []
        except OSError as error:
            raise self._refused(error) from error
        found = [number for name in names if (number := batch_number(name)) is not None]
        found.sort()
        return LocalListing(folder, found)

    def read(self, name: str) -> bytes:
        folder = os.path.dirname(name)
        if folder and os.path.islink(f"{self.location}/{folder}"):
            raise FileNotFoundError(name)
        try:
            with open(os.open(f"{self.location}/{name}", _READ), "rb") as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode):
                    raise FileNotFoundError(name)
                if found.st_size > LONGEST_FILE:
                    raise too_long(f"{self.location}/{name}")
                return file.read(LONGEST_FILE)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise FileNotFoundError(name) from error
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
                raise FileNotFoundError(name) from error
            raise self._refused(error) from error

    def explain_absence(self) -> str:
        try:
            with os.scandir(self.location) as entries:
                names = {entry.name for entry in entries}
        except FileNotFoundError:
            return "no such folder"
        except NotADirectoryError:
            return "this is a file, and a checkpoint is a folder"
        except OSError as error:
            raise self._refused(error) from error
        return describe_absence(names)

    def _refused(self, error: OSError) -> CheckpointAway:
        return CheckpointAway(f"{self.location}: {error.strerror or type(error).__name__}")


@dataclass(frozen=True)
class LocalListing:
    """Looks at a file only when asked about it."""

    folder: str
    numbers: list[int]

    def facts(self, number: int) -> FileFacts | None:
        try:
            found = os.lstat(f"{self.folder}/{number}")
        except OSError:
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        return FileFacts(
            found.st_mtime_ns // 1_000_000, found.st_size, (found.st_mtime_ns, found.st_ino)
        )


def find_local(pattern: str) -> list[str]:
    """Folders with a `metadata` that match, sorted. `*` stands within one name.

    Raises CheckpointNotFound where the folder before the first `*` is not there, and
    CheckpointAway where it may not be listed.
    """
    first, *rest = pattern.split("/")
    found = [first or "/"]
    if "*" in first:
        found, rest = [""], [first, *rest]
    for depth, part in enumerate(rest):
        if "*" not in part:
            found = [os.path.join(folder, part) for folder in found]
            continue
        is_first = not any("*" in before for before in rest[:depth])
        matcher = name_matcher(part)
        found = [
            os.path.join(folder, name)
            for folder in found
            for name in _folders_in(folder or ".", pattern, is_first)
            if matcher.fullmatch(name)
        ]
    below = os.path.realpath(fixed_prefix(pattern) or pattern)
    return sorted(
        folder
        for folder in found
        if os.path.isfile(os.path.join(folder, "metadata")) and is_below(folder, below)
    )


def is_below(location: str, real_prefix: str) -> bool:
    """Whether it is really there, whatever symbolic links are on the way."""
    real = os.path.realpath(location)
    return real == real_prefix or real.startswith(real_prefix.rstrip("/") + "/")


def name_matcher(part: str) -> re.Pattern[str]:
    """Of one name between slashes. Hidden ones match only what begins with a dot, as in a shell."""
    text = ".*".join(map(re.escape, part.split("*")))
    return re.compile(text if part.startswith(".") else rf"(?!\.){text}", re.DOTALL)


def describe_absence(names: set[str]) -> str:
    """Why a folder with these entries is not a checkpoint."""
    if not names:
        return "the folder is empty"
    if names & {"offsets", "commits"}:
        return "there is no metadata beside offsets and commits: it is not whole, or being deleted"
    return "this is not the checkpoint of a query: there is no metadata, offsets or commits"


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads back to itself
        return False


def _folders_in(folder: str, pattern: str, must_be_there: bool) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if _is_folder(entry)]
    except (FileNotFoundError, NotADirectoryError) as error:
        if must_be_there:
            raise CheckpointNotFound(f"{pattern}: there is no folder {folder}") from error
        return []
    except OSError as error:
        if must_be_there:
            raise CheckpointAway(f"{pattern}: {folder}: {error.strerror}") from error
        return []

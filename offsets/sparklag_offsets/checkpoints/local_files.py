"""Checkpoints in folders of this machine, or mounted on it: plain calls of microseconds."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from sparklag_offsets.checkpoints.files import FileFacts, Log
from sparklag_offsets.checkpoints.offset_log import batch_number
from sparklag_offsets.errors import CheckpointAway, CheckpointNotFound

_LONGEST_FILE: Final = 256 * 1024 * 1024
"""Bytes. No log of Spark's is near this; a pipe or a device has no end at all."""


class LocalFiles:
    """See CheckpointFiles."""

    lists_cheaply = True

    def __init__(self, location: str) -> None:
        self.location = location
        self._folders: dict[Log, str] = {
            "offsets": os.path.join(location, "offsets"),
            "commits": os.path.join(location, "commits"),
        }

    def begin(self) -> None:
        """Nothing here has a deadline: a call that hangs in the kernel cannot be left."""

    def stamp(self, log: Log) -> Hashable | None:
        try:
            found = os.stat(self._folders[log])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._refused(error) from error
        return (found.st_mtime_ns, found.st_ino)

    def list_log(self, log: Log) -> LocalListing:
        folder = self._folders[log]
        try:
            names = os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            names = []
        except OSError as error:
            raise self._refused(error) from error
        found = [number for name in names if (number := batch_number(name)) is not None]
        found.sort()
        return LocalListing(folder, found)

    def read(self, name: str) -> bytes:
        try:
            with open(f"{self.location}/{name}", "rb") as file:
                return file.read(_LONGEST_FILE)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise FileNotFoundError(name) from error
        except OSError as error:
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
            found = os.stat(f"{self.folder}/{number}")
        except OSError:
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
    return sorted(folder for folder in found if os.path.isfile(os.path.join(folder, "metadata")))


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


def _folders_in(folder: str, pattern: str, must_be_there: bool) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError) as error:
        if must_be_there:
            raise CheckpointNotFound(f"{pattern}: there is no folder {folder}") from error
        return []
    except OSError as error:
        if must_be_there:
            raise CheckpointAway(f"{pattern}: {folder}: {error.strerror}") from error
        return []

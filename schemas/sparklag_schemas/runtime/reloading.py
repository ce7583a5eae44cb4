"""What is read from files, and read again when they change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from sparklag_schemas.errors import SettingsError

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class Reloaded(Generic[_T]):
    """What `load` makes of files. While it fails, the last value stays in force."""

    def __init__(self, load: Callable[[], _T], files: Iterable[str | None]) -> None:
        """`load` raises SettingsError, and this raises it too. None: no file."""
        self._load = load
        self._paths = [Path(file) for file in files if file is not None]
        self._versions = [_version(path) for path in self._paths]
        self._problem = ""
        self.value = load()

    def refresh(self) -> _T:
        """The value, which is loaded again if a file has changed. Blocks; one at a time."""
        versions = [_version(path) for path in self._paths]
        if versions != self._versions:
            try:
                self.value, self._versions, self._problem = self._load(), versions, ""
                _log.info("read again: %s", ", ".join(map(str, self._paths)))
            except SettingsError as error:
                if str(error) != self._problem:
                    _log.error("%s; what was read before stays in force", error)
                self._problem = str(error)
        return self.value


def _version(path: Path) -> object:
    try:
        status = path.stat()
    except OSError as error:
        return error.errno
    return (status.st_mtime_ns, status.st_ino, status.st_size)

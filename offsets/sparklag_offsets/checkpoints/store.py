"""Opens checkpoints on this machine and in every store that fsspec reaches."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from sparklag_offsets.checkpoints.files import (
    LOCAL,
    CheckpointFiles,
    LocalFiles,
    find_local,
    normal_location,
    split_scheme,
)
from sparklag_offsets.checkpoints.position import CheckpointPosition
from sparklag_offsets.checkpoints.reader import CheckpointReader
from sparklag_offsets.checkpoints.remote_files import RemoteFiles, RemoteStore, find_remote
from sparklag_offsets.errors import CheckpointNotFound
from sparklag_schemas.text.locations import redact_location

_RETRY_S: Final = 0.2


class CheckpointStore:
    """Stores of every kind, with the options of each. Any number of threads may use it.

    `storage`: fsspec's options by the scheme of a location (`s3` for `s3a://` too); the option
    `webhdfs` of `hdfs` is the address of WebHDFS, to use that. `timeout_s` bounds one poll or
    search; it does not bound the kernel's access to a mounted folder.
    """

    def __init__(self, storage: Mapping[str, Mapping[str, Any]], timeout_s: float) -> None:
        self._options = {
            split_scheme(f"{scheme}:/")[0]: options for scheme, options in storage.items()
        }
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._remote: dict[tuple[str, str], RemoteStore] = {}

    def find(self, pattern: str) -> list[str]:
        """Normal locations of the checkpoints that match a pattern, sorted. A path without `*` is
        returned as it is, without I/O. `*` matches within one name, in any part of the path.

        Raises CheckpointNotFound where nothing matches, CheckpointAway. Blocking.
        """
        pattern = normal_location(pattern)
        if "*" not in pattern:
            return [pattern]
        if split_scheme(pattern)[0] == LOCAL:
            locations = find_local(pattern)
        else:
            locations = find_remote(self._remote_store(pattern), pattern)
        if not locations:
            raise CheckpointNotFound(f"{redact_location(pattern)}: no checkpoint matches")
        return locations

    def reader(
        self, location: str, below: str | None = None, needs_id: bool = True
    ) -> CheckpointReader:
        """A reader of the checkpoint at `location`; no I/O before its first poll. `below`: a local
        checkpoint is read only below that folder, with symbolic links resolved."""
        return CheckpointReader(self._files(location, below), needs_id)

    def close(self) -> None:
        """Close the connections to every store; bounded in time. Readers may reopen them."""
        with self._lock:
            stores = list(self._remote.values())
        for store in stores:
            store.close()

    def _files(self, location: str, below: str | None) -> CheckpointFiles:
        location = normal_location(location)
        if split_scheme(location)[0] == LOCAL:
            return LocalFiles(location, below)
        return RemoteFiles(self._remote_store(location), location)

    def _remote_store(self, location: str) -> RemoteStore:
        scheme, _ = split_scheme(location)
        with self._lock:
            store = self._remote.get(_key(location))
            if store is None:
                options = self._options.get(scheme, {})
                store = RemoteStore(scheme, location, options, self._timeout_s)
                self._remote[_key(location)] = store
            return store


def read_checkpoint(store: CheckpointStore, location: str) -> CheckpointPosition:
    """The position of the query of this checkpoint, from a single read. Lists both logs; retries
    a half-written file for some tenths of a second. Blocking. Raises CheckpointError."""
    reader = store.reader(location, needs_id=False)
    position = reader.poll()
    while reader.is_waiting:
        time.sleep(_RETRY_S)
        position = reader.poll() or position
    assert position is not None
    reader.check_newest_commit()
    return position


def _key(location: str) -> tuple[str, str]:
    """Scheme and authority: the parts of a location that select the file system."""
    scheme, rest = split_scheme(location)
    return scheme, rest.removeprefix("//").partition("/")[0]

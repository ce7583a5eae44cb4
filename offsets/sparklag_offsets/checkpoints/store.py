"""Where checkpoints are kept: on this machine, and in every store that fsspec reaches."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sparklag_offsets.checkpoints.files import CheckpointFiles
from sparklag_offsets.checkpoints.local_files import LocalFiles, find_local
from sparklag_offsets.checkpoints.location import (
    LOCAL,
    normal_location,
    split_scheme,
)
from sparklag_offsets.checkpoints.reader import CheckpointReader
from sparklag_offsets.errors import CheckpointNotFound
from sparklag_schemas.redaction import redact_location

if TYPE_CHECKING:
    from sparklag_offsets.checkpoints.remote_files import RemoteStore


class CheckpointStore:
    """All stores, with the options of each. For any number of threads.

    `storage` has fsspec's options by the scheme of a location (`s3` for `s3a://` too); of `hdfs`,
    `webhdfs` is the address of WebHDFS, which is then used. `timeout_s` bounds one look, and one
    search; what the kernel does with a mounted folder has no bound.
    """

    def __init__(self, storage: Mapping[str, Mapping[str, Any]], timeout_s: float) -> None:
        self._options = {
            split_scheme(f"{scheme}:/")[0]: options for scheme, options in storage.items()
        }
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._remote: dict[tuple[str, str], RemoteStore] = {}
        self._confirmed: dict[tuple[str, str], set[str]] = {}

    def find(self, pattern: str) -> list[str]:
        """Normal locations of the checkpoints that match a pattern, sorted; a path is its own
        answer, unseen. `*` stands within one name, folders above included.

        Raises CheckpointNotFound where nothing matches, CheckpointAway. Blocking.
        """
        pattern = normal_location(pattern)
        if "*" not in pattern:
            return [pattern]
        if split_scheme(pattern)[0] == LOCAL:
            found = find_local(pattern)
        else:
            # Loading fsspec takes longer than reading a folder.
            from sparklag_offsets.checkpoints.remote_files import find_remote

            store = self._remote_store(pattern)
            confirmed = self._confirmed.setdefault(_key(pattern), set())
            found = find_remote(store, pattern, confirmed)
        if not found:
            raise CheckpointNotFound(f"{redact_location(pattern)}: no checkpoint matches")
        return found

    def reader(self, location: str, below: str | None = None) -> CheckpointReader:
        """Of the checkpoint there. Nothing is asked for before its first look; of this machine
        nothing is read that does not really lie below that folder, where one is given."""
        return CheckpointReader(self._files(location, below))

    def close(self) -> None:
        """Close the connections to every store; bounded in time. Readers may open them anew."""
        with self._lock:
            stores = list(self._remote.values())
        for store in stores:
            store.close()

    def _files(self, location: str, below: str | None) -> CheckpointFiles:
        location = normal_location(location)
        if split_scheme(location)[0] == LOCAL:
            return LocalFiles(location, below)
        from sparklag_offsets.checkpoints.remote_files import RemoteFiles

        return RemoteFiles(self._remote_store(location), location)

    def _remote_store(self, location: str) -> RemoteStore:
        from sparklag_offsets.checkpoints.remote_files import RemoteStore

        scheme, _ = split_scheme(location)
        with self._lock:
            store = self._remote.get(_key(location))
            if store is None:
                store = RemoteStore(
                    scheme, location, self._options.get(scheme, {}), self._timeout_s
                )
                self._remote[_key(location)] = store
            return store


def _key(location: str) -> tuple[str, str]:
    """Scheme and authority: whatever of its file system the location itself may say."""
    scheme, rest = split_scheme(location)
    return scheme, rest.removeprefix("//").partition("/")[0]

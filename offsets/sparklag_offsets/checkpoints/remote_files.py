"""Checkpoints in every store that fsspec reaches. No listing of fsspec's is kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from sparklag_offsets.checkpoints.files import (
    LONGEST_FILE,
    FileFacts,
    FullListing,
    Log,
    too_long,
)
from sparklag_offsets.checkpoints.filesystems import close_connections, open_filesystem
from sparklag_offsets.checkpoints.local_files import describe_absence, name_matcher
from sparklag_offsets.checkpoints.location import split_scheme
from sparklag_offsets.checkpoints.offset_log import batch_number
from sparklag_offsets.checkpoints.store_failures import explain_store_failure
from sparklag_offsets.errors import CheckpointAway, CheckpointError, CheckpointNotFound
from sparklag_schemas.redaction import redact_location

_MODIFIED: Final = (
    "LastModified",
    "modificationTime",
    "mtime",
    "last_modified",
    "updated",
    "created",
)
"""What S3, WebHDFS, HDFS and Google's, Azure's and others call the time a file was written."""
_RENEW_S: Final = 3.0
_MARKS: Final = ("ETag", "etag", "fileId", "generation")


class RemoteStore:
    """One file system, for many threads; made when it is needed, and anew after it failed."""

    def __init__(
        self, scheme: str, location: str, options: Mapping[str, Any], timeout_s: float
    ) -> None:
        self.timeout_s = timeout_s
        self._scheme = scheme
        self._location = location
        self._options = options
        self._lock = threading.Lock()
        self._filesystem: Any = None
        self._opened_s = 0.0

    def call(self, shown: str, deadline_s: float, method: str, *arguments: Any) -> Any:
        """What a method of fsspec's answers until `deadline_s` (monotonic).

        `shown` is how errors call the location. Raises FileNotFoundError, CheckpointAway.
        """
        left_s = deadline_s - time.monotonic()
        with self._failures_explained(shown):
            if left_s <= 0:
                raise TimeoutError
            filesystem = self._opened()
            if not filesystem.async_impl:
                return getattr(filesystem, method)(*arguments)
            from fsspec.asyn import sync

            # As its blocking methods do it, which take a deadline each in a way of its own.
            bound = getattr(filesystem, f"_{method}")
            return sync(filesystem.loop, bound, *arguments, timeout=left_s)

    def read(self, shown: str, deadline_s: float, path: str) -> bytes:
        """A file. Raises MalformedCheckpoint where it is longer than LONGEST_FILE, and as `call`
        does."""
        if self._scheme != "s3":
            # A range would not do: not every store takes one that ends behind the file.
            facts = _facts(self.call(shown, deadline_s, "info", path))
            if facts.size is not None and facts.size > LONGEST_FILE:
                raise too_long(f"{shown}: {path}")
        content: bytes = self.call(shown, deadline_s, "cat_file", path)
        return content

    def list_folder(self, shown: str, deadline_s: float, path: str) -> list[dict[str, Any]]:
        """The entries of a folder, as fsspec describes them. Raises as `call` does."""
        with self._lock:
            if self._filesystem is not None:
                # Not every one takes `use_listings_cache`.
                self._filesystem.invalidate_cache()
        found: list[dict[str, Any]] = self.call(shown, deadline_s, "ls", path, True)
        # An object store may hold a key for the folder itself.
        return [entry for entry in found if entry["name"].strip("/") != path.strip("/")]

    def path_of(self, location: str) -> str:
        """As its methods take it. Raises CheckpointAway."""
        with self._failures_explained(redact_location(location)):
            path: str = self._opened()._strip_protocol(location)
            return path.rstrip("/")

    @contextmanager
    def _failures_explained(self, shown: str) -> Iterator[None]:
        try:
            yield
        except CheckpointError as error:
            raise type(error)(f"{shown}: {error}") from error
        # Each store has errors of its own, and they have no base in common.
        except Exception as error:
            cause = explain_store_failure(error, self._options, self.timeout_s)
            if cause is None:
                raise FileNotFoundError(shown) from error
            # Credentials are read when it is made: where they were renewed, the next one has them.
            # Making one takes a tenth of a second, and hundreds of readers may fail together.
            self.close(older_than_s=_RENEW_S)
            raise CheckpointAway(f"{shown}: {cause}") from error

    def close(self, older_than_s: float = 0.0) -> None:
        """Close the connections, if they are that old; bounded in time."""
        with self._lock:
            if time.monotonic() - self._opened_s < older_than_s:
                return
            given_up, self._filesystem = self._filesystem, None
        if given_up is not None:
            close_connections(given_up)

    def _opened(self) -> Any:
        with self._lock:
            if self._filesystem is None:
                self._filesystem = open_filesystem(
                    self._scheme, self._location, self._options, self.timeout_s
                )
                self._opened_s = time.monotonic()
            return self._filesystem


class RemoteFiles:
    """See CheckpointFiles."""

    lists_cheaply = False

    def __init__(self, store: RemoteStore, location: str) -> None:
        self.location = redact_location(location)
        self._store = store
        self._given = location
        self._path: str | None = None
        self._deadline_s = 0.0

    def begin(self) -> None:
        # Loading the store's package takes seconds on a busy machine, and is not the store's doing.
        self._root()
        self._deadline_s = time.monotonic() + self._store.timeout_s

    def stamp(self, log: Log) -> Hashable | None:
        # An object store has no folders, and HDFS asks as much for one as for the listing.
        return None

    def list_log(self, log: Log) -> FullListing:
        found = {}
        for entry in self._entries(log):
            number = batch_number(_name(entry))
            if number is not None and entry.get("type") == "file":
                found[number] = _facts(entry)
        return FullListing(found)

    def read(self, name: str) -> bytes:
        path = f"{self._root()}/{name}"
        return self._store.read(self.location, self._deadline_s, path)

    def explain_absence(self) -> str:
        names = {_name(entry) for entry in self._entries("")}
        if not names:
            return "no such folder, or an empty one"
        return describe_absence(names)

    def _entries(self, below: str) -> list[dict[str, Any]]:
        root = self._root()
        try:
            return self._store.list_folder(
                self.location, self._deadline_s, f"{root}/{below}" if below else root
            )
        except FileNotFoundError:
            return []

    def _root(self) -> str:
        if self._path is None:
            self._path = self._store.path_of(self._given)
        return self._path


def find_remote(store: RemoteStore, pattern: str, confirmed: set[str]) -> list[str]:
    """Locations that match and have a `metadata`, sorted. `*` stands within one name.

    What is in `confirmed` is not looked into again; what is found is added. Raises
    CheckpointNotFound where the folder before the first `*` is not there, CheckpointAway.
    """
    shown = redact_location(pattern)
    path = store.path_of(pattern)
    deadline_s = time.monotonic() + store.timeout_s
    # Below the authority, which fsspec makes a bucket of, or nothing at all.
    tail = "/" + split_scheme(pattern)[1].removeprefix("//").partition("/")[2]
    head, root = pattern.removesuffix(tail), path.removesuffix(tail)
    found = [root]
    is_first = True
    for part in tail.split("/")[1:]:
        if "*" not in part:
            found = [f"{folder}/{part}" for folder in found]
            continue
        matcher = name_matcher(part)
        inside: list[str] = []
        for folder in found:
            try:
                entries = store.list_folder(shown, deadline_s, folder or "/")
            except FileNotFoundError as error:
                if is_first:
                    raise CheckpointNotFound(f"{shown}: there is no folder {folder}") from error
                continue
            names = {_name(entry) for entry in entries if entry.get("type") == "directory"}
            inside += [f"{folder}/{name}" for name in sorted(names) if matcher.fullmatch(name)]
        found, is_first = inside, False
    return [
        head + folder.removeprefix(root)
        for folder in found
        if _is_checkpoint(store, shown, deadline_s, folder, confirmed)
    ]


def _is_checkpoint(
    store: RemoteStore, shown: str, deadline_s: float, folder: str, confirmed: set[str]
) -> bool:
    if folder in confirmed:
        return True
    try:
        store.call(shown, deadline_s, "info", f"{folder}/metadata")
    except FileNotFoundError:
        return False
    confirmed.add(folder)
    return True


def _name(entry: Mapping[str, Any]) -> str:
    return str(entry["name"]).rstrip("/").rpartition("/")[2]


def _facts(entry: Mapping[str, Any]) -> FileFacts:
    modified = next((entry[name] for name in _MODIFIED if entry.get(name) is not None), None)
    mark = next((entry[name] for name in _MARKS if entry.get(name) is not None), None)
    return FileFacts(_epoch_ms(modified), entry.get("size"), str(mark))


def _epoch_ms(modified: object) -> int | None:
    if isinstance(modified, str):
        try:
            modified = datetime.fromisoformat(modified.replace("Z", "+00:00"))
        except ValueError:
            return None
    if isinstance(modified, datetime):
        return round(modified.timestamp() * 1000)
    if isinstance(modified, int):
        return modified  # WebHDFS
    return round(modified * 1000) if isinstance(modified, float) else None

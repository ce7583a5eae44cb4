"""Checkpoints in every store that fsspec reaches. fsspec's own listing caches are not used."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sparklag_offsets.checkpoints.files import (
    MAX_FILE_BYTES,
    FileInfo,
    Listing,
    Log,
    file_too_long,
    match_folders,
    split_scheme,
)
from sparklag_offsets.checkpoints.filesystems import (
    close_connections,
    explain_store_failure,
    open_filesystem,
)
from sparklag_offsets.checkpoints.offset_log import parse_batch_id
from sparklag_offsets.errors import CheckpointAway, CheckpointError
from sparklag_schemas.text.locations import redact_location

# Keys of the modification time: S3, WebHDFS, HDFS and Google, Azure, others.
_MODIFIED: Final = (
    *("LastModified", "modificationTime", "mtime", "last_modified", "updated", "created"),
)
_VERSIONS: Final = ("ETag", "etag", "fileId", "generation")
_RENEW_S: Final = 3.0


@dataclass(eq=False, repr=False)
class RemoteStore:
    """A file system for many threads; opened on demand, and opened again after a failure."""

    _scheme: str
    _location: str
    _options: Mapping[str, Any]
    timeout_s: float
    confirmed: set[str] = field(default_factory=set)
    """Folders that are known to be checkpoints."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _filesystem: Any = None
    _opened_at_s: float = 0.0

    def call(self, shown: str, deadline_s: float, method: str, *arguments: Any) -> Any:
        """The result of a method of fsspec, until `deadline_s` (monotonic).

        `shown`: the location in errors. Raises FileNotFoundError, CheckpointAway.
        """
        left_s = deadline_s - time.monotonic()
        with self._errors_translated(shown):
            if left_s <= 0:
                raise TimeoutError
            filesystem = self._opened()
            if not filesystem.async_impl:
                return getattr(filesystem, method)(*arguments)
            from fsspec.asyn import sync

            # As fsspec's blocking methods do, which have no common way to pass a deadline.
            coroutine_function = getattr(filesystem, f"_{method}")
            return sync(filesystem.loop, coroutine_function, *arguments, timeout=left_s)

    def read(self, shown: str, deadline_s: float, path: str) -> bytes:
        """A file. Raises MalformedCheckpoint where it is longer than MAX_FILE_BYTES, and as `call`
        does."""
        arguments: tuple[object, ...] = (path,)
        if self._scheme != "s3":
            size = _file_info(self.call(shown, deadline_s, "info", path)).size
            if size is not None and size > MAX_FILE_BYTES:
                raise file_too_long(f"{shown}: {path}")
            # Not bytes that are added later; a range beyond the end is an error in some stores.
            arguments = (path, 0, size) if size else arguments
        content: bytes = self.call(shown, deadline_s, "cat_file", *arguments)
        return content

    def list_folder(self, shown: str, deadline_s: float, path: str) -> list[dict[str, Any]]:
        """The entries of a folder, as fsspec describes them. Raises as `call` does."""
        with self._lock:
            if self._filesystem is not None:
                # Not every file system takes `use_listings_cache`.
                self._filesystem.invalidate_cache()
        entries: list[dict[str, Any]] = self.call(shown, deadline_s, "ls", path, True)
        # An object store may hold a key for the folder itself.
        return [entry for entry in entries if entry["name"].strip("/") != path.strip("/")]

    def path_of(self, location: str) -> str:
        """The path as fsspec's methods take it. Raises CheckpointAway."""
        with self._errors_translated(redact_location(location)):
            path: str = self._opened()._strip_protocol(location)
            return path.rstrip("/")

    @contextmanager
    def _errors_translated(self, shown: str) -> Iterator[None]:
        try:
            yield
        except CheckpointError as error:
            raise type(error)(f"{shown}: {error}") from error
        # Each store has its own errors, without a common base.
        except Exception as error:
            reason = explain_store_failure(error, self._options, self.timeout_s)
            if reason is None:
                raise FileNotFoundError(shown) from error
            # A file system reads credentials when it is opened: a new one has renewed credentials.
            # Opening takes a tenth of a second, and hundreds of readers may fail together.
            self.close(older_than_s=_RENEW_S)
            raise CheckpointAway(f"{shown}: {reason}") from error

    def close(self, older_than_s: float = 0.0) -> None:
        """Close the connections if they are older than `older_than_s`; bounded in time."""
        with self._lock:
            if time.monotonic() - self._opened_at_s < older_than_s:
                return
            filesystem, self._filesystem = self._filesystem, None
        if filesystem is not None:
            close_connections(filesystem)

    def _opened(self) -> Any:
        with self._lock:
            if self._filesystem is None:
                self._filesystem = open_filesystem(
                    self._scheme, self._location, self._options, self.timeout_s
                )
                self._opened_at_s = time.monotonic()
            return self._filesystem


class RemoteFiles:
    """See CheckpointFiles."""

    lists_cheaply = False

    def __init__(self, store: RemoteStore, location: str) -> None:
        self.location = redact_location(location)
        self._store = store
        self._full_location = location
        self._path: str | None = None
        self._deadline_s = 0.0

    def start_poll(self) -> None:
        # Before the deadline: loading the store's package takes seconds on a busy machine.
        self._root()
        self._deadline_s = time.monotonic() + self._store.timeout_s

    def list_log(self, log: Log) -> Listing:
        files = {}
        path = f"{self._root()}/{log}"
        try:
            entries = self._store.list_folder(self.location, self._deadline_s, path)
        except FileNotFoundError:
            entries = []
        for entry in entries:
            batch_id = parse_batch_id(_name(entry))
            if batch_id is not None and entry.get("type") == "file":
                files[batch_id] = _file_info(entry)
        return Listing(sorted(files), files.get)

    def is_unchanged(self) -> bool:
        # An object store has no folders, and in HDFS this check takes as long as the listing.
        return False

    def forget_listings(self) -> None:
        """Nothing: no listing is cached."""

    def read(self, name: str) -> bytes:
        return self._store.read(self.location, self._deadline_s, f"{self._root()}/{name}")

    def _root(self) -> str:
        if self._path is None:
            self._path = self._store.path_of(self._full_location)
        return self._path


def find_remote(store: RemoteStore, pattern: str) -> list[str]:
    """Locations that match and have a `metadata`, or batches, sorted. Raises CheckpointNotFound
    where the folder before the first `*` is missing, CheckpointAway."""
    shown = redact_location(pattern)
    path = store.path_of(pattern)
    deadline_s = time.monotonic() + store.timeout_s
    # Below the authority, which fsspec takes for a bucket, or drops.
    tail = "/" + split_scheme(pattern)[1].removeprefix("//").partition("/")[2]
    head, root = pattern.removesuffix(tail), path.removesuffix(tail)

    def list_folders(folder: str, is_fixed: bool) -> list[str]:
        entries = store.list_folder(shown, deadline_s, folder or "/")
        return [_name(entry) for entry in entries if entry.get("type") == "directory"]

    def is_checkpoint(folder: str) -> bool:
        if folder not in store.confirmed:
            try:
                store.call(shown, deadline_s, "info", f"{folder}/metadata")
            except FileNotFoundError:
                with suppress(FileNotFoundError):
                    entries = store.list_folder(shown, deadline_s, f"{folder}/offsets")
                    return any(parse_batch_id(_name(entry)) is not None for entry in entries)
                return False
            store.confirmed.add(folder)
        return True

    folders = match_folders(root, tail, list_folders, shown)
    return [head + folder.removeprefix(root) for folder in folders if is_checkpoint(folder)]


def _name(entry: Mapping[str, Any]) -> str:
    return str(entry["name"]).rstrip("/").rpartition("/")[2]


def _file_info(entry: Mapping[str, Any]) -> FileInfo:
    modified = next((entry[name] for name in _MODIFIED if entry.get(name) is not None), None)
    version = next((entry[name] for name in _VERSIONS if entry.get(name) is not None), None)
    return FileInfo(_epoch_ms(modified), entry.get("size"), str(version))


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

"""Polls one checkpoint, and reads only what the position of its query requires.

Spark writes offsets/N before it runs batch N and commits/N after it, so the newest commit gives the
processed offsets, and a newer offsets file the planned ones. Batch numbers have gaps, old files are
purged, files vanish between a listing and a read, and the checkpoint may be deleted, or replaced by
another query's.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

from sparklag_offsets.checkpoints.files import CheckpointFiles, Listing
from sparklag_offsets.checkpoints.offset_log import (
    OffsetFile,
    parse_commit,
    parse_metadata,
    parse_offsets,
)
from sparklag_offsets.checkpoints.position import (
    NO_SOURCES,
    CheckpointPosition,
    CommitFile,
    Snapshot,
    TrackedSources,
    leaves_gaps,
    newest_commit,
    newest_file,
)
from sparklag_offsets.errors import CheckpointGone, CheckpointNotFound, MalformedCheckpoint

_FIRST_BATCHES: Final = 10
"""Committed batches that the first poll reads at most."""
_BROKEN_POLLS: Final = 3
"""A file that is broken in this many consecutive polls is an error. A writer in place has finished
by the next poll, seconds later; a crash leaves the file broken for ever."""
_LOCAL_ATTEMPTS: Final = 20
_REMOTE_ATTEMPTS: Final = 3
"""The retries of a poll after a listed file is gone. A fast query purges files while they are read;
where a poll takes microseconds, that may happen many times in a row."""


class CheckpointReader:
    """A checkpoint, polled by one thread at a time. Calls block."""

    def __init__(self, files: CheckpointFiles, needs_id: bool = True) -> None:
        """`needs_id`: a checkpoint without the id of its query is an error."""
        self.location = files.location
        self._files = files
        self._needs_id = needs_id
        self._snapshot: Snapshot | None = None
        self._last_position: CheckpointPosition | None = None
        self._broken: dict[int, int] = {}
        """Consecutive polls in which the offsets file of a batch was broken."""
        self._broken_before: dict[int, int] = {}
        """The value of `_broken` after the previous poll."""
        self._rewound_to: tuple[CommitFile | None] | None = None
        """The newest commit, if the last poll is the first in which it is older than before."""

    def poll(self) -> CheckpointPosition | None:
        """The position of the query; None where nothing has changed since the last poll.

        Raises CheckpointError. After an error the next poll returns the position again.
        """
        was_waiting = self.is_waiting
        try:
            self._files.start_poll()
            self._broken_before, self._broken = self._broken, {}
            if self._snapshot is not None and not was_waiting and self._files.is_unchanged():
                return None
            self._snapshot = self._read_with_retries(was_waiting)
        except BaseException:
            self._files.forget_listings()
            self._last_position = None
            raise
        position = self._snapshot.position()
        if position == self._last_position:
            return None
        self._last_position = position
        return position

    @property
    def is_waiting(self) -> bool:
        """True: the last poll read a file half written, or a checkpoint half deleted."""
        return bool(self._broken) or self._rewound_to is not None

    def check_newest_commit(self) -> None:
        """Read the commit file that `poll` only lists. Raises MalformedCheckpoint."""
        if self._snapshot is None or self._snapshot.batch_id is None:
            return
        name = f"commits/{self._snapshot.batch_id}"
        with suppress(FileNotFoundError):
            parse_commit(self._files.read(name), f"{self.location}/{name}")

    def _read_with_retries(self, was_waiting: bool) -> Snapshot:
        attempts = _LOCAL_ATTEMPTS if self._files.lists_cheaply else _REMOTE_ATTEMPTS
        for attempt in range(attempts):
            try:
                return self._read(was_waiting or attempt > 0)
            except FileNotFoundError:
                # The listed file was purged in the meantime, or the checkpoint is being deleted.
                self._files.forget_listings()
        raise CheckpointGone(
            f"{self.location}: its files vanish while they are read: it is being deleted"
        )

    def _read(self, was_waiting: bool) -> Snapshot:
        snapshot = self._snapshot
        if snapshot is None or self._files.lists_cheaply:
            return self._read_listed(self._files.list_log("commits"))
        offsets = None
        if snapshot.has_gaps and snapshot.planned_batch_id is None:
            # Every batch is planned before it is committed.
            offsets = self._files.list_log("offsets")
            if newest_file(offsets) == snapshot.newest_offsets and not was_waiting:
                return snapshot
        return self._read_commits(snapshot, offsets)

    def _read_commits(self, snapshot: Snapshot, offsets: Listing | None) -> Snapshot:
        """List only the commits, which give the names of the offsets files."""
        commits = self._files.list_log("commits")
        newest = newest_commit(commits)
        if newest is None and snapshot.commit is None and snapshot.planned_batch_id is not None:
            # The first batch is running: only the id can show that the query is the same.
            is_same = self._identify(has_batches=True).query_id == snapshot.query_id
            return snapshot if is_same else self._read_listed(commits)
        if newest is None or not snapshot.is_continued_by(commits, newest):
            return self._read_listed(commits)
        if newest != snapshot.commit:
            try:
                file = self._read_offsets(newest[0], snapshot.sources)
            except FileNotFoundError:
                return self._read_listed(commits)
            if file is None:
                return snapshot
            snapshot = snapshot.after_commit(newest, file)
        if leaves_gaps(commits):
            if snapshot.planned_batch_id is not None:
                return snapshot
            return self._with_listed_plan(replace(snapshot, has_gaps=True), offsets)
        snapshot = replace(snapshot, has_gaps=False)
        if snapshot.planned_batch_id is None:
            return self._with_plan(snapshot, newest[0] + 1, None)
        if snapshot.is_continuous:
            # The next epochs are planned before this one is committed.
            return self._with_plan(snapshot, snapshot.planned_batch_id + 1, None)
        return snapshot

    def _read_listed(self, commits: Listing) -> Snapshot:
        """List both logs: the commits first, so that each commit has its offsets file."""
        offsets = self._files.list_log("offsets")
        newest = newest_commit(commits, set(offsets.batch_ids))
        snapshot = self._snapshot
        if snapshot is not None and not snapshot.is_continued_by(commits, newest):
            snapshot = self._if_same_query(snapshot, newest)
            if snapshot is None:
                self._rewound_to = None
            elif self._rewound_to is not None:
                return snapshot
        else:
            self._rewound_to = None
        if snapshot is None:
            snapshot = self._read_first(commits, offsets)
        elif newest is not None and newest != snapshot.commit:
            file = self._read_offsets(newest[0], snapshot.sources)
            if file is None:
                return snapshot
            snapshot = snapshot.after_commit(newest, file)
        return self._with_listed_plan(replace(snapshot, has_gaps=leaves_gaps(commits)), offsets)

    def _if_same_query(self, snapshot: Snapshot, newest: CommitFile | None) -> Snapshot | None:
        """`snapshot`, if it is still the same query although the commits do not show it. None: read
        the checkpoint as in the first poll."""
        if self._identify(has_batches=newest is not None).query_id != snapshot.query_id:
            return None
        if snapshot.commit is None or (newest is not None and newest[0] >= snapshot.commit[0]):
            self._rewound_to = None
            return snapshot
        # Commits were removed to rewind the query; or the checkpoint is being deleted, and then
        # the next poll differs.
        if self._rewound_to == (newest,):
            return None
        self._rewound_to = (newest,)
        return snapshot

    def _read_first(self, commits: Listing, offsets: Listing) -> Snapshot:
        """The newest committed batch, and earlier batches for sources without an offset in it.

        One earlier batch is always read: it shows whether the newest is cut off after a line.
        """
        snapshot = self._identify(bool(offsets.batch_ids or commits.batch_ids))
        planned = set(offsets.batch_ids)
        committed = [number for number in reversed(commits.batch_ids) if number in planned]
        earlier = NO_SOURCES
        for number in committed[1:_FIRST_BATCHES]:
            try:
                file = parse_offsets(self._files.read(f"offsets/{number}"), self._name(number))
            except (FileNotFoundError, MalformedCheckpoint):
                continue
            earlier = earlier.before(file)
            if not any(line.is_absent for line in file.lines.values()):
                break
        for number in committed[:_FIRST_BATCHES]:
            info = commits.info(number)
            if info is None or info.size == 0:
                continue
            newest = self._read_offsets(number, earlier)
            if newest is not None:
                return replace(snapshot, sources=earlier).after_commit((number, info), newest)
        if commits.batch_ids and not self._broken and newest_commit(commits):
            raise MalformedCheckpoint(
                f"{self.location}: no committed batch still has its offsets file"
            )
        return snapshot

    def _with_listed_plan(self, snapshot: Snapshot, offsets: Listing | None) -> Snapshot:
        """The snapshot with the newest planned batch, from the listing of the offsets log."""
        offsets = offsets or self._files.list_log("offsets")
        snapshot = replace(snapshot.without_plan(), newest_offsets=newest_file(offsets))
        last = -1 if snapshot.batch_id is None else snapshot.batch_id
        if not offsets.batch_ids or offsets.batch_ids[-1] <= last:
            return snapshot
        return self._with_plan(snapshot, offsets.batch_ids[-1], offsets)

    def _with_plan(self, snapshot: Snapshot, number: int, offsets: Listing | None) -> Snapshot:
        """The snapshot with offsets/`number` as planned, if it is complete. Without a listing the
        file may be missing."""
        try:
            file = self._read_offsets(number, snapshot.sources)
        except FileNotFoundError:
            if offsets is not None:
                raise
            return snapshot
        if file is None:
            return snapshot
        info = offsets.info(number) if offsets is not None else None
        return replace(
            snapshot,
            planned_batch_id=number,
            planned_at_ms=info.modified_ms if info is not None else None,
            planned=file,
            is_continuous=file.is_continuous,
        )

    def _read_offsets(self, batch_id: int, sources: TrackedSources) -> OffsetFile | None:
        """The offsets file of a batch; None where it seems to be half written.

        Raises FileNotFoundError, CheckpointAway, UnsupportedCheckpoint, and MalformedCheckpoint
        for a file that stays half written.
        """
        name = self._name(batch_id)
        content = self._files.read(f"offsets/{batch_id}")
        try:
            file = parse_offsets(content, name)
            if not sources.may_precede(file):
                missing = min(sources.numbers - file.lines.keys())
                raise MalformedCheckpoint(f"{name} is cut off: source {missing} is not in it")
        except MalformedCheckpoint:
            polls = self._broken_before.get(batch_id, 0) + 1
            self._broken[batch_id] = polls
            if polls >= _BROKEN_POLLS:
                raise
            return None
        return file

    def _name(self, batch_id: int) -> str:
        return f"{self.location}/offsets/{batch_id}"

    def _identify(self, has_batches: bool) -> Snapshot:
        """A snapshot without batches. Raises CheckpointNotFound, CheckpointGone, and, unless the
        batches are read without an id, MalformedCheckpoint."""
        name = f"{self.location}/metadata"
        try:
            return Snapshot(parse_metadata(self._files.read("metadata"), name))
        except MalformedCheckpoint as error:
            problem = error
        except FileNotFoundError:
            if not has_batches and self._snapshot is None:
                raise CheckpointNotFound(
                    f"{self.location}: there is no checkpoint here: expected the"
                    " checkpointLocation of a query, a folder with the file metadata, or a pattern"
                    f" that finds those in this folder: {self.location}/*"
                ) from None
            if not has_batches:
                raise CheckpointGone(
                    f"{self.location}: the checkpoint was deleted, or is being deleted: its file"
                    " metadata is missing"
                ) from None
            problem = MalformedCheckpoint(
                f"{name} is missing, which holds the query's id: Spark before 4.2 would go on"
                " with a new query id, Spark 4.2 on refuses to start"
                " (STREAMING_CHECKPOINT_MISSING_METADATA_FILE)"
            )
        if self._needs_id or not has_batches:
            raise problem
        return Snapshot("", str(problem))

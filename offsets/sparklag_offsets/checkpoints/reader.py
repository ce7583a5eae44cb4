"""Reads one checkpoint again and again, and as little of it as tells where its query is.

Spark writes offsets/N before it runs batch N and commits/N after it, so the newest commit says what
is processed, and a newer offsets file what is planned. Numbers have holes, old files are deleted,
files vanish between a listing and a read, and somebody may delete the whole, or put another query's
checkpoint in its place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sparklag_offsets.checkpoints.files import CheckpointFiles, Listing
from sparklag_offsets.checkpoints.listings import Listings
from sparklag_offsets.checkpoints.offset_file_reader import OffsetFileReader
from sparklag_offsets.checkpoints.offset_log import parse_commit, parse_metadata
from sparklag_offsets.checkpoints.position import NOTHING, CheckpointPosition
from sparklag_offsets.checkpoints.snapshot import (
    Commit,
    Known,
    leaves_holes,
    newest_commit,
    newest_file,
)
from sparklag_offsets.errors import CheckpointGone, CheckpointNotFound, MalformedCheckpoint

_BACK: Final = 10
"""Committed batches that the first look reads at most."""


class CheckpointReader:
    """One location, looked at by one thread at a time. Calls block."""

    def __init__(self, files: CheckpointFiles) -> None:
        self.location = files.location
        self._files = files
        self._listings = Listings(files)
        self._offsets = OffsetFileReader(files)
        self._known: Known | None = None
        self._told: CheckpointPosition | None = None
        self._rewound_to: tuple[Commit | None] | None = None
        """The newest commit, where it is older than one seen before, and only one look saw that."""

    def look(self) -> CheckpointPosition | None:
        """Where the query is; None where nothing has changed since the last look.

        Raises CheckpointError. After an error the position is told anew.
        """
        is_waiting = self.is_waiting
        try:
            self._files.begin()
            self._offsets.begin()
            if self._known is not None and not is_waiting and self._listings.are_unchanged():
                return None
            self._known = self._read_patiently(is_waiting)
        except BaseException:
            self._listings.clear()
            self._told = None
            raise
        position = self._known.position()
        if position == self._told:
            return None
        self._told = position
        return position

    @property
    def is_waiting(self) -> bool:
        """Whether the last look found something half written, or half deleted."""
        return self._offsets.is_waiting or self._rewound_to is not None

    def check_newest_commit(self) -> None:
        """Read what `look` takes on trust. Raises MalformedCheckpoint, UnsupportedCheckpoint."""
        if self._known is None or self._known.batch_id is None:
            return
        name = f"commits/{self._known.batch_id}"
        try:
            content = self._files.read(name)
        except FileNotFoundError:
            return
        parse_commit(content, f"{self.location}/{name}")

    def _read_patiently(self, is_waiting: bool) -> Known:
        """A file that is listed and gone is looked for once more, in new listings."""
        try:
            return self._read(is_waiting)
        except FileNotFoundError:
            self._listings.clear()
        try:
            return self._read(True)
        except FileNotFoundError as error:
            raise CheckpointGone(
                f"{self.location}: its files vanish while they are read: it is being deleted"
            ) from error

    def _read(self, is_waiting: bool) -> Known:
        known = self._known
        if known is None or self._files.lists_cheaply:
            return self._read_listed(self._listings.list_log("commits"))
        offsets = None
        if known.has_holes and known.planned_batch_id is None:
            # Nothing is committed that was not planned before.
            offsets = self._listings.list_log("offsets")
            if newest_file(offsets) == known.newest_offsets and not is_waiting:
                return known
        return self._read_commits(known, offsets)

    def _read_commits(self, known: Known, offsets: Listing | None) -> Known:
        """One listing, and the files whose names follow from it, or from that of the offsets."""
        commits = self._listings.list_log("commits")
        newest = newest_commit(commits)
        if newest is None and known.commit is None and known.planned_batch_id is not None:
            # The first batch runs. Nothing but the id tells this from another query's.
            return known if self._query_id() == known.query_id else self._read_listed(commits)
        if newest is None or not known.is_continued(commits, newest):
            return self._read_listed(commits)
        if newest != known.commit:
            try:
                file = self._offsets.read(newest[0], known.progress)
            except FileNotFoundError:
                return self._read_listed(commits)
            if file is None:
                return known
            known = known.committed(newest, file)
        has_holes = leaves_holes(commits)
        if has_holes:
            if known.planned_batch_id is not None:
                return known
            return self._with_listed_plan(replace(known, has_holes=True), offsets)
        known = replace(known, has_holes=False)
        if known.planned_batch_id is None:
            return self._with_plan(known, newest[0] + 1, None)
        if known.is_continuous:
            # The next epochs are planned before this one is committed.
            return self._with_plan(known, known.planned_batch_id + 1, None)
        return known

    def _read_listed(self, commits: Listing) -> Known:
        """With both logs listed. Commits first, so that each of them has its offsets file."""
        offsets = self._listings.list_log("offsets")
        newest = newest_commit(commits, set(offsets.numbers))
        known = self._known
        if known is not None and not known.is_continued(commits, newest):
            known = self._recognized(known, newest)
            if known is None:
                self._rewound_to = None
            elif self._rewound_to is not None:
                return known
        else:
            self._rewound_to = None
        if known is None:
            known = self._first(commits, offsets)
        elif newest is not None and newest != known.commit:
            file = self._offsets.read(newest[0], known.progress)
            if file is None:
                return known
            known = known.committed(newest, file)
        return self._with_listed_plan(replace(known, has_holes=leaves_holes(commits)), offsets)

    def _recognized(self, known: Known, newest: Commit | None) -> Known | None:
        """`known`, where the commits are of the same query although they do not show it; None
        where all is to be read as if for the first time."""
        if self._query_id() != known.query_id:
            return None
        if known.commit is None or (newest is not None and newest[0] >= known.commit[0]):
            self._rewound_to = None
            return known
        # Somebody took commits back; or the checkpoint is being deleted, and does not stay so.
        if self._rewound_to == (newest,):
            return None
        self._rewound_to = (newest,)
        return known

    def _first(self, commits: Listing, offsets: Listing) -> Known:
        """The newest committed batch, and what earlier ones say of sources that have a `-` in it.

        One earlier is read in any case: it shows whether the newest is cut off after a line.
        """
        known = Known(self._query_id())
        there = set(offsets.numbers)
        committed = [number for number in reversed(commits.numbers) if number in there]
        earlier = NOTHING
        for number in committed[1:_BACK]:
            before = self._offsets.read_if_whole(number)
            if before is not None:
                earlier = earlier.before(before)
                if not before.has_absent:
                    break
        for number in committed[:_BACK]:
            facts = commits.facts(number)
            if facts is None or facts.size == 0:
                continue
            file = self._offsets.read(number, earlier)
            if file is not None:
                return replace(known, progress=earlier).committed((number, facts), file)
        if commits.numbers and not self._offsets.is_waiting and newest_commit(commits):
            raise MalformedCheckpoint(
                f"{self.location}: of no batch that is committed the offsets file is left"
            )
        return known

    def _with_listed_plan(self, known: Known, offsets: Listing | None = None) -> Known:
        """The same with the newest batch that is planned, by the listing of the offsets log."""
        offsets = offsets or self._listings.list_log("offsets")
        known = replace(
            known,
            planned_batch_id=None,
            planned_at_ms=None,
            planned=None,
            newest_offsets=newest_file(offsets),
        )
        last = -1 if known.batch_id is None else known.batch_id
        if not offsets.numbers or offsets.numbers[-1] <= last:
            return known
        return self._with_plan(known, offsets.numbers[-1], offsets)

    def _with_plan(self, known: Known, number: int, offsets: Listing | None) -> Known:
        """The same with offsets/`number` as planned, where it is whole; not listed, it may also
        not be there."""
        try:
            file = self._offsets.read(number, known.progress)
        except FileNotFoundError:
            if offsets is not None:
                raise
            return known
        if file is None:
            return known
        facts = offsets.facts(number) if offsets is not None else None
        return replace(
            known,
            planned_batch_id=number,
            planned_at_ms=facts.modified_ms if facts is not None else None,
            planned=file,
            is_continuous=file.is_continuous,
        )

    def _query_id(self) -> str:
        try:
            content = self._files.read("metadata")
        except FileNotFoundError:
            absent = self._files.explain_absence()
            if self._known is None:
                raise CheckpointNotFound(f"{self.location}: {absent}") from None
            raise CheckpointGone(
                f"{self.location}: the checkpoint was deleted, or is being deleted ({absent})"
            ) from None
        return parse_metadata(content, f"{self.location}/metadata")

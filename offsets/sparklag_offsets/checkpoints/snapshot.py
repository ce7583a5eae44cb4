"""The state of a checkpoint between two polls, and how a listing compares to it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparklag_offsets.checkpoints.files import FileInfo, Listing
from sparklag_offsets.checkpoints.offset_log import OffsetFile
from sparklag_offsets.checkpoints.position import NO_SOURCES, CheckpointPosition, TrackedSources

CommitFile = tuple[int, FileInfo]
"""A batch that is committed, and its file."""


@dataclass(frozen=True)
class Snapshot:
    """The state after the polls so far."""

    query_id: str
    commit: CommitFile | None = None
    """The newest."""
    sources: TrackedSources = NO_SOURCES
    planned_batch_id: int | None = None
    planned_at_ms: int | None = None
    planned: OffsetFile | None = None
    is_continuous: bool = False
    has_gaps: bool = False
    """The next batch's number cannot be guessed: progress is tracked asynchronously."""
    newest_offsets: tuple[int, FileInfo | None] | None = None
    """As of the last listing of the offsets log."""

    @property
    def batch_id(self) -> int | None:
        return self.commit[0] if self.commit is not None else None

    def position(self) -> CheckpointPosition:
        """The position to return to the caller."""
        return CheckpointPosition(
            self.query_id,
            self.batch_id,
            self.planned_batch_id,
            self.commit[1].modified_ms if self.commit is not None else None,
            self.planned_at_ms,
            self.sources.offsets(self.planned),
        )

    def after_commit(self, commit: CommitFile, file: OffsetFile) -> Snapshot:
        """The same, one batch or several later."""
        return replace(
            self,
            commit=commit,
            sources=self.sources.after(file),
            is_continuous=file.is_continuous,
            planned_batch_id=None,
            planned_at_ms=None,
            planned=None,
        )

    def is_continued_by(self, commits: Listing, newest: CommitFile | None) -> bool:
        """Whether these commits are certainly of the same query: ours is there, unchanged."""
        if self.commit is None or newest is None or newest[0] < self.commit[0]:
            return False
        return newest == self.commit or commits.info(self.commit[0]) == self.commit[1]


def newest_file(listing: Listing) -> tuple[int, FileInfo | None] | None:
    """The newest batch and its file."""
    batch_ids = listing.batch_ids
    return (batch_ids[-1], listing.info(batch_ids[-1])) if batch_ids else None


def newest_commit(commits: Listing, planned: set[int] | None = None) -> CommitFile | None:
    """The newest commit; an empty file is not written yet. `planned`: only these batches."""
    for batch_id in reversed(commits.batch_ids):
        if planned is None or batch_id in planned:
            info = commits.info(batch_id)
            if info is not None and info.size != 0:
                return batch_id, info
    return None


def leaves_gaps(commits: Listing) -> bool:
    """Whether batches are missing between the newest two."""
    batch_ids = commits.batch_ids
    return len(batch_ids) > 1 and batch_ids[-1] - batch_ids[-2] > 1

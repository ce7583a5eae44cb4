"""What is known of a checkpoint between two looks, and what listings say to that. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparklag_offsets.checkpoints.files import FileFacts, Listing
from sparklag_offsets.checkpoints.offset_log import OffsetFile
from sparklag_offsets.checkpoints.position import NOTHING, CheckpointPosition, Progress

Commit = tuple[int, FileFacts]


@dataclass(frozen=True)
class Known:
    """What the looks so far have found."""

    query_id: str
    commit: Commit | None = None
    """The newest."""
    progress: Progress = NOTHING
    planned_batch_id: int | None = None
    planned_at_ms: int | None = None
    planned: OffsetFile | None = None
    is_continuous: bool = False
    has_holes: bool = False
    """The next batch's number cannot be guessed: progress is tracked asynchronously."""
    newest_offsets: tuple[int, FileFacts | None] | None = None
    """Where the offsets log was listed last."""

    @property
    def batch_id(self) -> int | None:
        return self.commit[0] if self.commit is not None else None

    def position(self) -> CheckpointPosition:
        """As it is told."""
        return CheckpointPosition(
            self.query_id,
            self.batch_id,
            self.planned_batch_id,
            self.commit[1].modified_ms if self.commit is not None else None,
            self.planned_at_ms,
            self.progress.offsets(self.planned),
        )

    def committed(self, commit: Commit, file: OffsetFile) -> Known:
        """The same one batch, or several, later."""
        return replace(
            self,
            commit=commit,
            progress=self.progress.after(file),
            is_continuous=file.is_continuous,
            planned_batch_id=None,
            planned_at_ms=None,
            planned=None,
        )

    def is_continued(self, commits: Listing, newest: Commit | None) -> bool:
        """Whether these can only be the same query's: the commit known is there as it was."""
        if self.commit is None or newest is None or newest[0] < self.commit[0]:
            return False
        return newest == self.commit or commits.facts(self.commit[0]) == self.commit[1]


def newest_file(listing: Listing) -> tuple[int, FileFacts | None] | None:
    """With its facts."""
    numbers = listing.numbers
    return (numbers[-1], listing.facts(numbers[-1])) if numbers else None


def newest_commit(commits: Listing, among: set[int] | None = None) -> Commit | None:
    """With its facts; an empty file is not yet written. `among`: batches with an offsets file."""
    for number in reversed(commits.numbers):
        if among is None or number in among:
            facts = commits.facts(number)
            if facts is not None and facts.size != 0:
                return number, facts
    return None


def leaves_holes(commits: Listing) -> bool:
    """Whether batches are missing between the newest two."""
    numbers = commits.numbers
    return len(numbers) > 1 and numbers[-1] - numbers[-2] > 1

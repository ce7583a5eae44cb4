"""Reads offsets files that may be half written."""

from __future__ import annotations

from typing import Final

from sparklag_offsets.checkpoints.files import CheckpointFiles
from sparklag_offsets.checkpoints.offset_log import OffsetFile, parse_offsets
from sparklag_offsets.checkpoints.position import Progress
from sparklag_offsets.errors import MalformedCheckpoint

_PATIENCE_LOOKS: Final = 3
"""In so many looks on end a file that counts must be broken before that is an error: whoever writes
a file in place is done by the next look, seconds later; a crash leaves it so for ever."""


class OffsetFileReader:
    """Of one checkpoint; remembers which file was broken in the last look."""

    def __init__(self, files: CheckpointFiles) -> None:
        self._files = files
        self._broken: dict[int, int] = {}
        """By batch: in how many looks on end."""
        self._broken_before: dict[int, int] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether a file that counts was broken in this look."""
        return bool(self._broken)

    def begin(self) -> None:
        """A look begins."""
        self._broken_before, self._broken = self._broken, {}

    def read(self, batch_id: int, progress: Progress) -> OffsetFile | None:
        """The offsets file of a batch; None where it is half written, as far as one can tell.

        Raises FileNotFoundError, CheckpointAway, UnsupportedCheckpoint, and MalformedCheckpoint
        for what stays half written.
        """
        name = self._name(batch_id)
        content = self._files.read(f"offsets/{batch_id}")
        try:
            file = parse_offsets(content, name)
            if not progress.may_precede(file):
                missing = min(progress.sources - file.lines.keys())
                raise MalformedCheckpoint(f"{name} is cut off: source {missing} is not in it")
        except MalformedCheckpoint:
            looks = self._broken_before.get(batch_id, 0) + 1
            self._broken[batch_id] = looks
            if looks >= _PATIENCE_LOOKS:
                raise
            return None
        return file

    def read_if_whole(self, batch_id: int) -> OffsetFile | None:
        """The same of a file that is not the newest, and need not be there."""
        try:
            return parse_offsets(self._files.read(f"offsets/{batch_id}"), self._name(batch_id))
        except (FileNotFoundError, MalformedCheckpoint):
            return None

    def _name(self, batch_id: int) -> str:
        return f"{self._files.location}/offsets/{batch_id}"

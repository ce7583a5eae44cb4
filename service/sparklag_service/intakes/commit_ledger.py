"""Which offsets of a partition are done: the next to commit is the first that is not. Pure."""

from __future__ import annotations

from collections import deque


class CommitLedger:
    """Offsets are taken in order and done in any order."""

    def __init__(self) -> None:
        self._open: deque[int] = deque()
        self._done: set[int] = set()
        self._next: int | None = None
        self._committed: int | None = None

    def take(self, offset: int) -> None:
        """An offset was read; larger than every one before."""
        self._open.append(offset)

    def done(self, offset: int) -> None:
        """What the offset caused is safe."""
        self._done.add(offset)
        while self._open and self._open[0] in self._done:
            self._next = self._open.popleft() + 1
            self._done.remove(self._next - 1)

    @property
    def to_commit(self) -> int | None:
        """The offset to commit (exclusive end); None when it was committed already."""
        return self._next if self._next != self._committed else None

    def committed(self, offset: int) -> None:
        """Kafka has it."""
        self._committed = offset

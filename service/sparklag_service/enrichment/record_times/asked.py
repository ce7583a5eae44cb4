"""What was asked of the log already: no position is asked for twice while it stands. Pure."""

from __future__ import annotations

from typing import Final

from aiokafka.structs import TopicPartition

from sparklag_schemas import IsolationLevel

AGAIN_S: Final = 3_600.0
SOON_S: Final = 60.0
"""When to ask again where there was no record."""
_MOST_POSITIONS: Final = 8
"""Of one partition: so many queries read it at different ones."""
_SEEN_S: Final = 3.0
"""So long another position of a partition is not asked for: what is found stays there to be seen
for longer than between two evaluations."""

Position = tuple[str | None, IsolationLevel, int]
"""The topic's id, and the offset as it is read at a level."""


class Asked:
    """Positions by partition, and until when each needs no answer. Times: `time.monotonic()`."""

    def __init__(self, seen_s: float = _SEEN_S) -> None:
        self._until_s: dict[TopicPartition, dict[Position, float]] = {}
        self._busy: dict[TopicPartition, tuple[Position, float]] = {}
        """With what each partition is busy, and until when."""
        self._seen_s = seen_s

    def is_due(self, partition: TopicPartition, position: Position, now_s: float) -> bool:
        """Whether to ask for it now."""
        if partition in self._busy and self._busy[partition][1] > now_s:
            return False
        known = self._until_s.get(partition)
        return known is None or known.get(position, now_s) <= now_s

    def begin(self, partition: TopicPartition, position: Position, now_s: float) -> None:
        """It is asked for."""
        positions = self._until_s.setdefault(partition, {})
        positions.pop(position, None)
        if len(positions) == _MOST_POSITIONS:
            del positions[next(iter(positions))]
        positions[position] = now_s + AGAIN_S
        self._busy[partition] = position, now_s + self._seen_s

    def found(self, partition: TopicPartition, position: Position, now_s: float) -> None:
        """Its record's time is there to be seen."""
        self._busy[partition] = position, now_s + self._seen_s

    def again(self, partition: TopicPartition, position: Position, at_s: float) -> None:
        """It came to nothing, and is to be asked for again, then."""
        if partition in self._busy and self._busy[partition][0] == position:
            # Not where another one is asked for by now.
            del self._busy[partition]
        positions = self._until_s.get(partition)
        if positions is not None and position in positions:
            positions[position] = at_s

    def tidy(self, now_s: float) -> None:
        """Forget what is over."""
        self._busy = {one: busy for one, busy in self._busy.items() if busy[1] > now_s}
        for partition, positions in list(self._until_s.items()):
            left = {position: until_s for position, until_s in positions.items() if until_s > now_s}
            if left:
                self._until_s[partition] = left
            else:
                del self._until_s[partition]

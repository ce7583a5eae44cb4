"""How fast a log's start advances: when unread records will be deleted. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

_STEPS: Final = 6
"""Advances that are remembered of a partition."""


class Advances(NamedTuple):
    """The last advances of one partition's earliest offset: when each was seen, and to where.

    Kafka deletes whole segments, so a log's start stands for hours and then jumps.
    """

    steps: tuple[tuple[float, int], ...]
    """`time.monotonic()` and offset, in their order. Of the first one the length is not known."""

    def with_step(self, at_s: float, earliest: int) -> Advances:
        """And one more."""
        return Advances((*self.steps, (at_s, earliest))[-_STEPS:])

    def rate(self, now_s: float) -> float | None:
        """Offsets a second that are deleted. None: two advances are needed to tell."""
        first_s, first = self.steps[0]
        last_s, last = self.steps[-1]
        if last_s <= first_s:
            return None
        # Where it stands longer than it used to, it has become slower.
        longest_s = max(b - a for (a, _), (b, _) in zip(self.steps, self.steps[1:], strict=False))
        return (last - first) / max(last_s - first_s, now_s - first_s - longest_s)

"""What truly was: the ends of logs over time and the positions of queries. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class LogHistory:
    """The end of one partition's log, bounded from both sides at every moment.

    Times are epoch seconds, and only rise.
    """

    base: int = 0
    repeated: int = 0
    """Records that are in it twice: acknowledged, and the answer was lost."""
    _sent_s: list[float] = field(default_factory=list)
    _acked: int = 0
    _acked_s: list[float] = field(default_factory=list)
    _acked_ends: list[int] = field(default_factory=list)

    def sending(self, now_s: float) -> None:
        """A record goes out: from now on the log may hold it."""
        self._sent_s.append(now_s)

    def acknowledged(self, end: int, now_s: float) -> None:
        """The next record is written, and by now the log ends there or later."""
        self._acked += 1
        self.repeated = max(self.repeated, end - self.base - self._acked)
        if end > self.end:
            self._acked_s.append(now_s)
            self._acked_ends.append(end)

    @property
    def end(self) -> int:
        return self._acked_ends[-1] if self._acked_ends else self.base

    def least_end(self, at_s: float) -> int:
        known = bisect_right(self._acked_s, at_s)
        return self._acked_ends[known - 1] if known else self.base

    def greatest_end(self, at_s: float) -> int:
        return self.base + bisect_right(self._sent_s, at_s) + self.repeated


@dataclass
class TopicLife:
    """A topic from its creation to its deletion: the next of the same name is another."""

    born_s: float
    logs: dict[int, LogHistory]
    died_s: float = float("inf")

    def lived(self, from_s: float, until_s: float) -> bool:
        return self.born_s <= until_s and from_s <= self.died_s


@dataclass(frozen=True)
class Observed:
    query_id: str
    observed_at_ms: int
    processed: Mapping[str, Mapping[int, int]]
    lives: Mapping[str, int]
    """Topic to the number of the life that the position is of."""
    sent_s: float


@dataclass
class QueryHistory:
    query_id: str
    observed: list[Observed] = field(default_factory=list)
    acknowledged: dict[int, int] = field(default_factory=dict)
    """Index in `observed` to offset on `processed-offsets`."""

    @property
    def last(self) -> Observed:
        return self.observed[-1]

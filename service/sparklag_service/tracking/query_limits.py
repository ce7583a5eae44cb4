"""How many queries one instance measures, and how many of their partitions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Final

from sparklag_schemas import Observation
from sparklag_schemas.errors import OverLimit
from sparklag_schemas.settings import LimitSettings

NEAR: Final = 0.8
"""From this share of a limit on the service warns."""


class QueryLimits:
    """Queries that were admitted first stay; one that would exceed a limit is refused."""

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self._admitted: dict[str, int] = {}
        self.partitions = 0
        """Of all queries."""
        self.is_full = False
        """Something was refused since this was last set to False."""

    def admit(self, query_id: str, partitions: int) -> None:
        """Raises OverLimit where the query is new, or has more partitions than before, and that
        exceeds a limit."""
        before = self._admitted.get(query_id)
        total = self.partitions - (before or 0) + partitions
        limits = self._limits
        if before is None and len(self._admitted) >= limits.queries:
            self.is_full = True
            raise OverLimit(f"already {limits.queries:,} queries on this instance (limits.queries)")
        if partitions > (before or 0) and total > limits.watched_partitions:
            self.is_full = True
            raise OverLimit(
                f"its {partitions:,} partitions exceed the {limits.watched_partitions:,} of this"
                " instance (limits.watched_partitions)"
            )
        self._admitted[query_id] = partitions
        self.partitions = total

    def admitted(self, query_id: str) -> int:
        """Partitions it was admitted with; -1: it was not."""
        return self._admitted.get(query_id, -1)

    def release(self, query_id: str) -> None:
        """It is measured no more."""
        self.partitions -= self._admitted.pop(query_id, 0)

    @property
    def shares(self) -> dict[str, tuple[int, int]]:
        """How much of each limit is used: its setting, used, limit."""
        limits = self._limits
        return {
            "queries": (len(self._admitted), limits.queries),
            "watched_partitions": (self.partitions, limits.watched_partitions),
        }


def near_limits(shares: Mapping[str, tuple[int, int]]) -> str | None:
    """Which limits are nearly reached. None: none is."""
    near = [
        f"{used:,} of {limit:,} (limits.{setting})"
        for setting, (used, limit) in shares.items()
        if used >= NEAR * limit
    ]
    return ", ".join(near) or None


def observed_partitions(observation: Observation) -> int:
    """Partitions and topics that an observation names, at most."""
    return sum(
        len(source.topics or ())
        + max(_count(source.processed), _count(source.planned), _count(source.assigned))
        for source in observation.sources
    )


def _count(position: Mapping[str, Sized] | None) -> int:
    return sum(map(len, (position or {}).values()))

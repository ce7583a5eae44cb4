"""What bounds the reading of records: how much is read, of which topics, and how often. Pure.

Times are `time.monotonic()`.
"""

from __future__ import annotations

import logging
from typing import Final

from aiokafka.structs import TopicPartition

from sparklag_schemas import IsolationLevel

_log = logging.getLogger(__name__)

FIRST_BYTES: Final = 1_024
"""Fetched where the batch sizes of a topic are unknown."""
MAX_BYTES: Final = 1024 * 1024
"""Of one response, and so of a batch."""
FORBIDDEN_S: Final = 600.0
_SHRINK: Final = 0.98
"""For each batch that is smaller than the largest recent one."""
_MIN_BYTES: Final = 256
_BYTES_PER_S: Final = 1024 * 1024
_BURST_BYTES: Final = 8 * 1024 * 1024
_MAX_POSITIONS: Final = 8
"""Remembered for each partition: so many queries read it at different positions."""
_SHOWN_S: Final = 3.0
"""So long a timestamp is not replaced by another position's: until each evaluation has seen it."""

Position = tuple[str | None, IsolationLevel, int]
"""Topic id, and an offset as it is read at that isolation level."""


class ByteBudget:
    """So many bytes each second, and what was saved up to `burst_bytes`.

    The size of a response is known afterwards only, so the budget may be in debt.
    """

    def __init__(
        self, now_s: float, bytes_per_s: int = _BYTES_PER_S, burst_bytes: int = _BURST_BYTES
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._burst_bytes = burst_bytes
        self._left = float(burst_bytes)
        self._updated_s = now_s

    def spend(self, size: int, now_s: float) -> None:
        self._refill(now_s)
        self._left -= size

    def wait_s(self, now_s: float) -> float:
        """How long until bytes may be spent."""
        self._refill(now_s)
        return max(0.0, -self._left / self._bytes_per_s)

    def _refill(self, now_s: float) -> None:
        refilled = self._left + (now_s - self._updated_s) * self._bytes_per_s
        self._left = min(refilled, self._burst_bytes)
        self._updated_s = now_s


class BatchSizes:
    """The size of the largest recent batch of each topic, so that a fetch asks for one batch."""

    def __init__(self) -> None:
        self._bytes: dict[str, float] = {}

    def usual(self, topic: str) -> int:
        """So many bytes the next batch probably has at most."""
        return int(self._bytes.get(topic, FIRST_BYTES))

    def learn(self, topic: str, size: int) -> None:
        previous = self._bytes.get(topic, _MIN_BYTES)
        self._bytes[topic] = min(MAX_BYTES, max(size, previous * _SHRINK, _MIN_BYTES))

    def retain(self, topics: set[str]) -> None:
        """Forget the others."""
        self._bytes = {topic: size for topic, size in self._bytes.items() if topic in topics}


class ForbiddenTopics:
    """Topics of the cluster `alias` without the right to read them: each is retried after a while,
    and logged once."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._until_s: dict[str, float] = {}

    def add(self, topic: str, now_s: float) -> bool:
        """Whether the topic was not among them."""
        until_s = self._until_s.get(topic)
        self._until_s[topic] = now_s + FORBIDDEN_S
        if until_s is None:
            _log.warning(
                "Kafka cluster %s: no right to read topic %s: the age of its records is computed"
                " from when the log grew; to read it, allow Read, or set time_lag.sample = false",
                *(self._alias, topic),
            )
        return until_s is None or until_s <= now_s

    def remove(self, topic: str) -> None:
        self._until_s.pop(topic, None)

    def contains(self, topic: str, now_s: float) -> bool:
        return self._until_s.get(topic, now_s) > now_s


class SampleSchedule:
    """Which positions are not sampled (again) for some time."""

    def __init__(self) -> None:
        self._due_s: dict[TopicPartition, dict[Position, float]] = {}
        self._shown_until_s: dict[TopicPartition, float] = {}

    def is_due(self, partition: TopicPartition, position: Position, now_s: float) -> bool:
        return (
            self._shown_until_s.get(partition, now_s) <= now_s
            and self._due_s.get(partition, {}).get(position, now_s) <= now_s
        )

    def postpone(self, partition: TopicPartition, position: Position, until_s: float) -> None:
        """Of a partition's positions only the last few are remembered."""
        positions = self._due_s.setdefault(partition, {})
        positions.pop(position, None)
        if len(positions) == _MAX_POSITIONS:
            del positions[next(iter(positions))]
        positions[position] = until_s

    def show(self, partition: TopicPartition, now_s: float) -> None:
        """A position's timestamp is available: no other one of the partition is sampled soon."""
        self._shown_until_s[partition] = now_s + _SHOWN_S

    def tidy(self, now_s: float) -> None:
        """Forget what is over."""
        self._shown_until_s = {p: s for p, s in self._shown_until_s.items() if s > now_s}
        for partition, positions in list(self._due_s.items()):
            if max(positions.values()) <= now_s:
                del self._due_s[partition]

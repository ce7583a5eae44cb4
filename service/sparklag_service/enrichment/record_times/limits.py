"""What bounds the reading of records: how much is read, and what is not read again soon. Pure.

Times are `time.monotonic()`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

FIRST_BYTES: Final = 1_024
"""Fetched where the batch sizes of a topic are unknown."""
MAX_BYTES: Final = 1024 * 1024
"""Of one response, and so of a batch."""
_SHRINK: Final = 0.98
"""For each batch that is smaller than the largest recent one."""
_MIN_BYTES: Final = 256
_BYTES_PER_S: Final = 1024 * 1024
_BURST_BYTES: Final = 8 * 1024 * 1024


class ByteBudget:
    """So many bytes each second, and what was saved up to `burst_bytes`.

    The size of a response is known afterwards only, so the budget may be in debt.
    """

    def __init__(
        self, now_s: float, bytes_per_s: int = _BYTES_PER_S, burst_bytes: int = _BURST_BYTES
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._burst_s = burst_bytes / bytes_per_s
        self._spent_until_s = now_s - self._burst_s

    def spend(self, size: int, now_s: float) -> None:
        saved_since_s = max(self._spent_until_s, now_s - self._burst_s)
        self._spent_until_s = saved_since_s + size / self._bytes_per_s

    def wait_s(self, now_s: float) -> float:
        """How long until bytes may be spent."""
        return max(0.0, self._spent_until_s - now_s)


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

    def retain(self, topics: Iterable[str]) -> None:
        """Forget the others."""
        self._bytes = {topic: self._bytes[topic] for topic in topics if topic in self._bytes}


class Postponed:
    """Topics, partitions and positions that are not read before some time, the newest of them."""

    def __init__(self, max_keys: int = 50_000) -> None:
        self._until_s: dict[Hashable, float] = {}
        self._max_keys = max_keys

    def add(self, key: Hashable, until_s: float) -> None:
        self._until_s.pop(key, None)
        if len(self._until_s) >= self._max_keys:
            del self._until_s[next(iter(self._until_s))]
        self._until_s[key] = until_s

    def contains(self, key: Hashable, now_s: float) -> bool:
        return self._until_s.get(key, now_s) > now_s

    def tidy(self, now_s: float) -> None:
        """Forget what is over."""
        self._until_s = {key: s for key, s in self._until_s.items() if s > now_s}

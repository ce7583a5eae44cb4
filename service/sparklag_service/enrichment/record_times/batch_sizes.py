"""How large the batches of topics are, so that a fetch asks for no more than one. Pure."""

from __future__ import annotations

from typing import Final

from sparklag_service.enrichment.record_times.search import FIRST_BYTES, MOST_BYTES

_SHRINK: Final = 0.98
"""For each batch that is smaller than the largest of late."""
_SMALLEST: Final = 256


class BatchSizes:
    """The largest of late, by topic."""

    def __init__(self) -> None:
        self._bytes: dict[str, float] = {}

    def usual(self, topic: str) -> int:
        """In so many bytes the next batch likely fits."""
        return int(self._bytes.get(topic, FIRST_BYTES))

    def learn(self, topic: str, size: int) -> None:
        """A batch was so large."""
        known = self._bytes.get(topic, _SMALLEST)
        self._bytes[topic] = min(MOST_BYTES, max(size, known * _SHRINK, _SMALLEST))

    def keep_only(self, topics: set[str]) -> None:
        """Forget the others."""
        self._bytes = {topic: size for topic, size in self._bytes.items() if topic in topics}

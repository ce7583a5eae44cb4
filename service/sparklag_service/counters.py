"""What the service counts about itself: read by `/health/ready`, written by every part."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass
class Counters:
    """Counts since the start of this instance."""

    observations: int = 0
    """Observations taken in."""
    malformed: int = 0
    """Messages that do not keep the contract; each is logged with its position, and skipped."""
    superseded: int = 0
    """Observations that gave way to a newer one of their query, for lag only."""
    stale: int = 0
    """Observations older than the last one of their query."""
    passes: int = 0
    """Measuring passes."""
    published: int = 0
    """Lag events and tombstones Kafka acknowledged."""
    too_large: int = 0
    """Lag events dropped: the topic refuses their size. The first of each query is logged."""
    publish_failures: int = 0
    """Lag events that were not acknowledged; their query is measured and published again."""
    tombstones: int = 0
    """Queries forgotten."""

    def as_dict(self) -> dict[str, int]:
        """Name to count."""
        return asdict(self)

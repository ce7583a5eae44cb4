"""What a handle counts: written by the loop and the callbacks, read by `handle.stats()`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Stats:
    """Counts since `observe`."""

    observed: int = 0
    """Events Spark handed over, or, polling, was asked for."""
    published: int = 0
    """Observations Kafka acknowledged, or, embedded, the service took."""
    recorded: int = 0
    """Batches written to the offset store."""
    dropped: int = 0
    """Events and observations that gave way to a newer one of their query, that Kafka refuses by
    size, or that were neither published nor recorded when the handle was closed."""
    ignored: int = 0
    """Events of queries without Kafka sources, and events older than one seen already."""
    recovered: int = 0
    """Events that did not come through Spark's listener bus, or came too late, and were made good
    by asking Spark."""
    reregistered: int = 0
    """How often Spark Connect's client had dropped its listeners, and was given ours again."""
    failed: int = 0
    """Events that could not be read, and attempts to publish that failed (they are repeated)."""
    queued: int = 0
    """Observations on their way: not yet published, nor dropped."""
    last_error: str | None = None
    """The newest failure, in one line."""
    last_published_at_ms: int | None = None
    """Epoch milliseconds. Standalone only."""
    url: str | None = None
    """Embedded only: where the service answers, once it does."""

    def fail(self, error: str) -> None:
        """Count a failure and remember it."""
        self.failed += 1
        self.last_error = error

"""The counts of a handle: written by the loop and the callbacks, read by `handle.stats()`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Stats:
    """Counts since `observe`."""

    observed: int = 0
    """Events from Spark, or polled without a listener."""
    published: int = 0
    """Observations that Kafka acknowledged, or that the embedded service took."""
    recorded: int = 0
    """Batches written to the offset store."""
    dropped: int = 0
    """Events and observations replaced by a newer one of their query, refused by Kafka for their
    size, or neither published nor recorded when the handle was closed."""
    ignored: int = 0
    """Events of queries without Kafka sources, and events older than the last."""
    recovered: int = 0
    """Events that Spark's listener bus lost or delayed, recovered by polling."""
    reregistered: int = 0
    """Times that Spark Connect's client had dropped its listeners and took ours again."""
    failed: int = 0
    """Events that could not be parsed, and failed attempts to publish (they are retried)."""
    queued: int = 0
    """Observations that are neither published nor dropped yet."""
    last_error: str | None = None
    """The newest failure, in one line."""
    last_published_at_ms: int | None = None
    """Epoch milliseconds. Standalone only."""
    url: str | None = None
    """Embedded only: the URL of the service, once it responds."""

    def fail(self, error: str) -> None:
        self.failed += 1
        self.last_error = error

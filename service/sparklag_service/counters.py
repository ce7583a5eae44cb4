"""What the service counts about itself: written by every part, read by `/metrics` and
`/health/ready`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from sparklag_service.refusals import Refusals


def count(meaning: str) -> Any:
    """A count that begins with 0."""
    return field(default=0, metadata={"meaning": meaning})


@dataclass
class Counts:
    """What is made of these."""

    def as_dict(self) -> dict[str, int]:
        """Name to count."""
        return asdict(self)

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """Name to what is counted."""
        return {counter.name: counter.metadata["meaning"] for counter in fields(cls)}


@dataclass
class Counters(Counts):
    """Counts since the start of this instance."""

    def __post_init__(self) -> None:
        self.refusals = Refusals()
        """Messages that were not taken."""

    observations: int = count("Observations taken in.")
    superseded: int = count(
        "Observations that gave way to a newer one of their query, for lag only."
    )
    stale: int = count(
        "Observations that were read again, or older than the last one of their query."
    )
    measured: int = count("Measurements: of one query, once.")
    published: int = count("Lag events and tombstones Kafka acknowledged.")
    too_large: int = count(
        "Lag events dropped: the topic refuses their size. The first of each query is logged."
    )
    publish_failures: int = count(
        "Lag events that were not acknowledged; their query is measured and published again."
    )
    tombstones: int = count("Queries forgotten.")
    partition_records: int = count("Partition records and their tombstones Kafka acknowledged.")
    partition_failures: int = count(
        "Partition records that were not acknowledged; they are written again with the next event."
    )
    rebalances: int = count("Times the group shared its partitions anew.")
    adopted: int = count("Queries taken over from the view.")
    evicted: int = count(
        "Queries forgotten before `keep_s`, their drivers silent, to make room: `limits`."
    )
    released: int = count("Queries given up to another instance, or forgotten.")
    outdated_events: int = count(
        "Lag events that came after a newer one of their query; the view keeps the newer."
    )
    reads_failed: int = count("Times one of the two topics could not be read; it is tried again.")
    commits_failed: int = count("Commits that failed; what they say is said again by the next.")

    batches_recorded: int = count("Batches written to the offset store.")
    batches_pruned: int = count("Batches deleted from the offset store, past their time.")
    batches_refused: int = count(
        "Observations that the offset store does not take; each is logged, and dropped."
    )
    store_failures: int = count("Times the offset store failed; what was to be written is again.")

    mirror_commits: int = count("Commits of the mirror that Kafka took, each to one query's group.")
    mirror_refused: int = count(
        "Times the mirror left a group alone: it is somebody else's, or has members."
    )
    mirror_superseded: int = count(
        "Positions that were not mirrored: their group has a newer one, or is a successor's."
    )
    mirror_failures: int = count(
        "Times the mirror could not read a group or commit to it; it is tried again."
    )

    connections_refused: int = count(
        "HTTP connections refused: as many as `limits.connections` allows, or one address may have."
    )
    stream_accepted: int = count("Readers of the live stream that were let in.")
    stream_refused: int = count("Readers of the live stream beyond `live.max_readers`.")
    stream_cut_off: int = count("Readers of the live stream that were too slow, and cut off.")
    stream_gaps: int = count("Readers that came back for more than was kept for them.")
    history_left_out: int = count("Events without a place in the history: its memory is full.")
    otlp_failures: int = count("Pushes to the OpenTelemetry collector that failed.")
    followers_failed: int = count(
        "Failures in what follows the view, history or live stream; the first is logged."
    )

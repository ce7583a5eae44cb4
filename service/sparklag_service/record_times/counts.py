"""What is counted of the reading of records."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class RecordTimeCounts:
    """Counts since the start of this instance, of one cluster."""

    sampled: int = 0
    """Records whose time was read."""
    requests: int = 0
    """Fetch requests."""
    bytes_read: int = 0
    """What came back, bytes."""
    unusable: int = 0
    """Positions whose record has no time, is too large, or cannot be decoded."""
    out_of_range: int = 0
    """Positions that the log does not reach (any more)."""
    nothing_there: int = 0
    """Positions behind which there is no record yet: the rest of a transaction, or a gap."""
    forbidden: int = 0
    """Times a topic was left alone because it may not be read."""
    failed: int = 0
    """Positions that a leader did not answer for; they are asked for again."""
    looked_up: int = 0
    """Partitions whose earlier ends were looked up by time."""

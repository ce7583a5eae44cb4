"""What is counted of the reading of records."""

from __future__ import annotations

from dataclasses import dataclass

from sparklag_service.counters import Counts, count


@dataclass
class RecordTimeCounts(Counts):
    """Counts since the start of this instance, of one cluster."""

    sampled: int = count("Records whose time was read.")
    requests: int = count("Fetch requests.")
    bytes_read: int = count("What came back, bytes.")
    unusable: int = count("Positions whose record has no time, is too large, or cannot be decoded.")
    out_of_range: int = count("Positions that the log does not reach (any more).")
    nothing_there: int = count(
        "Positions behind which there is no record yet: the rest of a transaction, or a gap."
    )
    forbidden: int = count("Times a topic was left alone because it may not be read.")
    failed: int = count("Positions that a leader did not answer for; they are asked for again.")
    looked_up: int = count("Partitions whose earlier ends were looked up by time.")

"""One partition's search for the first record at a position. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from sparklag_kafka.brokers.fetch import FetchedPartition
from sparklag_kafka.errors import RecordsUnreadable
from sparklag_kafka.protocol import error_codes
from sparklag_service.enrichment.record_times.lagging import Lagging
from sparklag_service.enrichment.record_times.limits import MAX_BYTES

_GROWTH: Final = 4
_MAX_FETCHES: Final = 12
"""Five reach the maximum size, the others pass over what no consumer gets."""
_MIN_TIMESTAMP_MS: Final = 1_293_840_000_000
"""2011, Kafka's first year. An earlier timestamp is not when a record came: zero, or seconds."""

Outcome = Literal["sampled", "nothing_there", "out_of_range", "forbidden", "unusable", "failed"]
"""Each is counted: see RecordTimeCounts."""
_OUTCOMES: Final[dict[int, Outcome]] = {
    error_codes.OFFSET_OUT_OF_RANGE: "out_of_range",
    error_codes.TOPIC_FORBIDDEN: "forbidden",
}


@dataclass(eq=False)
class Search:
    """Until it has an `outcome`, up to `size` bytes are fetched from `offset`."""

    lagging: Lagging
    size: int
    """At first: bytes that a batch of the topic usually has at most."""
    offset: int = field(init=False)
    outcome: Outcome | None = None
    reason: str = ""
    """Why there is no timestamp."""
    timestamp_ms: int = -1
    """Epoch milliseconds, if the outcome is `sampled`."""
    fetches: int = 0

    def __post_init__(self) -> None:
        self.offset = self.lagging.position

    def take(self, fetched: FetchedPartition) -> None:
        """Go on with what the leader has at `offset`."""
        self.fetches += 1
        self.outcome, self.reason = self._next(fetched)

    def _next(self, fetched: FetchedPartition) -> tuple[Outcome | None, str]:
        code = fetched.error_code
        if code != error_codes.NONE:
            reason = f"the leader answers {error_codes.error_name(code)}"
            return _OUTCOMES.get(code, "failed"), reason
        level = self.lagging.level
        try:
            timestamp_ms, next_offset = fetched.first_record(self.offset, level)
        except RecordsUnreadable as unreadable:
            return "unusable", str(unreadable)
        if timestamp_ms is not None:
            self.timestamp_ms = timestamp_ms
            if timestamp_ms < _MIN_TIMESTAMP_MS:
                return "unusable", f"its timestamp is {timestamp_ms}"
            return "sampled", ""
        if next_offset >= fetched.end_offset(level):
            return "nothing_there", "there is no record yet"
        if self.fetches == _MAX_FETCHES:
            return "unusable", f"no record up to offset {next_offset}"
        if next_offset == self.offset and self.size == MAX_BYTES:
            return "unusable", f"a batch of more than {MAX_BYTES} bytes"
        self.offset = next_offset
        self.size = min(MAX_BYTES, _GROWTH * self.size)
        return None, ""

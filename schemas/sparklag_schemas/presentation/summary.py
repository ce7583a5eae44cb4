"""A query in `GET /lag`: a lag event without what a list does not show."""

from __future__ import annotations

from msgspec import Struct

from sparklag_schemas.messages.bounds import (
    Count,
    DurationS,
    EpochMs,
    Int64,
    Name,
    SignedRate,
    Text,
)
from sparklag_schemas.messages.enumerations import OpenActivity, OpenOrigin, OpenStatus
from sparklag_schemas.messages.query_message import RunningBatch


class Summary(Struct, frozen=True, kw_only=True):
    """The fields of a lag event that lists show."""

    query_id: Name
    query: Name | None = None
    topics: list[str] = []
    origin: OpenOrigin = "listener"
    status: OpenStatus = "UNKNOWN"
    status_since: EpochMs | None = None
    reason: Text | None = None
    measured_at: EpochMs
    observed_at: EpochMs | None = None
    processed_at: EpochMs | None = None
    total_lag: Count | None = None
    max_time_lag_s: DurationS | None = None
    lag_trend: SignedRate | None = None
    catch_up_s: DurationS | None = None
    catch_up_reason: Text | None = None
    min_headroom_records: Int64 | None = None
    min_headroom_s: DurationS | None = None
    activity: OpenActivity | None = None
    running_batch: RunningBatch | None = None

    @property
    def display_name(self) -> str:
        """The query's name, or the beginning of its id."""
        return self.query or self.query_id[:8]

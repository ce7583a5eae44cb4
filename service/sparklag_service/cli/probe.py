"""What a probe objects to: a query that is behind, or of which nobody knows. Pure."""

from __future__ import annotations

from sparklag_schemas import LagEvent
from sparklag_schemas.formatting import ago, span

_MEASURED_MAX_AGE_MS = 60_000
"""Queries are measured each second and told each ten; an older measurement says nothing of now."""


def objection(
    event: LagEvent, now_ms: int, *, max_lag: int | None, max_age_s: float | None
) -> str | None:
    """Why the query is not within these, in a line. None: it is; what is not known is not."""
    if max_lag is None and max_age_s is None:
        return None
    if now_ms - event.measured_at > _MEASURED_MAX_AGE_MS:
        return f"its lag is not known: it was measured {ago(event.measured_at, now_ms)}"
    if event.total_lag is None:
        return f"its lag is not known{f': {event.reason}' if event.reason else ''}"
    if event.unknown_partitions:
        return f"the lag of {event.unknown_partitions} partitions is not known"
    if max_lag is not None and event.total_lag > max_lag:
        return f"it lags by {event.total_lag:,} records, {max_lag:,} are allowed"
    return _too_old(event, max_age_s) if max_age_s is not None else None


def _too_old(event: LagEvent, max_age_s: float) -> str | None:
    behind = [one for topic in event.topics for one in topic.partitions if one.lag]
    worst_s = event.max_time_lag_s or 0.0
    if worst_s > max_age_s:
        allowed = span(max_age_s)
        return f"its oldest unprocessed record is {span(worst_s)} old, {allowed} is allowed"
    for one in behind:
        if one.time_lag_s is None:
            return "the age of its oldest unprocessed record is not known"
        if one.time_lag_method == "floor":
            # It may be far older: the service has not seen that record come.
            least = span(one.time_lag_s)
            return f"its oldest unprocessed record is at least {least} old; how old is not known"
    return None

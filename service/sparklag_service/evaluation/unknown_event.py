"""The event of a query that cannot be evaluated. Pure."""

from __future__ import annotations

from sparklag_schemas import LagEvent
from sparklag_service.tracking.query_state import QueryState, without_position


def unknown_event(
    state: QueryState, measured_by: str, now_ms: int, *, event_id: str, reason: str | None
) -> LagEvent:
    """Who the query is and when it was heard of, and no number that might be what went wrong."""
    return LagEvent(
        event_id=event_id,
        cluster=state.cluster,
        query_id=state.query_id,
        run_id=state.run_id,
        query=state.name,
        origin=state.origin,
        cause="refresh",
        measured_by=measured_by,
        status="UNKNOWN",
        reason=reason,
        observed_at=state.observed_at_ms,
        measured_at=now_ms,
        topics=[],
    )


def without_numbers(event: LagEvent, reason: str) -> LagEvent:
    """The same event, and not what it measured."""
    return unknown_event(
        without_position(event),
        event.measured_by,
        event.measured_at,
        event_id=event.event_id,
        reason=reason,
    )

"""The traces of batches with an acknowledged lag event, until they are pushed.

A trace has four spans in sequence: `callback` and `observation` in the driver, `measured` and
`published` in the service, which knows the times of all four.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from sparklag_schemas import LagEvent, Observation
from sparklag_schemas.messages.headers import SpanContext
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.counters import Counters
from sparklag_service.intakes import BatchTrace

_CALLBACK_SPAN: Final = 1
_MEASURED_SPAN: Final = 3
PUBLISHED_SPAN: Final = 4
_KEPT: Final = 2_000
"""Traces; each takes some hundred bytes."""


class BatchSpan(NamedTuple):
    """A span. Its times are epoch milliseconds by the clock of its process."""

    name: str
    context: SpanContext
    began_at: int
    ended_at: int
    in_driver: bool


class PublishedTrace(NamedTuple):
    """The spans of one batch; each span is the parent of the next."""

    spans: tuple[BatchSpan, ...]
    attributes: dict[str, str | int]


class PublishedTraces:
    """The newest traces. Older ones that were not pushed count as dropped."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._traces: deque[PublishedTrace] = deque(maxlen=_KEPT)

    def add(self, trace: BatchTrace, observation: Observation, event: LagEvent) -> None:
        """Add the trace of the completed batch `observation`. `event`, just acknowledged, covers
        it."""
        self._counters.traces_dropped += len(self._traces) == _KEPT
        span, observed_at = trace.context.span, observation.observed_at
        completed_at = observation.processed_at or observed_at
        attributes: dict[str, str | int | None] = {
            "sparklag.query": observation.query,
            "sparklag.query_id": observation.query_id,
            "sparklag.run_id": observation.run_id,
            "sparklag.batch_id": observation.batch_id,
            "sparklag.cluster": observation.cluster,
            "sparklag.event_id": event.event_id,
            "sparklag.total_lag": event.total_lag,
            "sparklag.status": event.status,
        }
        measured, published = span(_MEASURED_SPAN), span(PUBLISHED_SPAN)
        spans = (
            BatchSpan("callback", span(_CALLBACK_SPAN), completed_at, observed_at, True),
            BatchSpan("observation", trace.context, observed_at, trace.written_at_ms, True),
            BatchSpan("measured", measured, trace.received_at_ms, event.measured_at, False),
            BatchSpan("published", published, event.measured_at, epoch_ms(), False),
        )
        known = {name: value for name, value in attributes.items() if value is not None}
        self._traces.append(PublishedTrace(spans, known))

    def take(self) -> list[PublishedTrace]:
        taken = list(self._traces)
        self._traces.clear()
        return taken

    def put_back(self, taken: list[PublishedTrace]) -> None:
        """Add traces again that could not be pushed."""
        newer = self.take()
        both = [*taken, *newer]
        self._counters.traces_dropped += max(0, len(both) - _KEPT)
        self._traces.extend(both)

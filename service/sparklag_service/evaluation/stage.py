"""The evaluation stage: enricher ──▶ evaluator ──▶ publisher."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from msgspec.structs import replace

from sparklag_schemas import LagEvent, MeasuredBy, ResolvedSettings
from sparklag_schemas.messages.topics import own_topic_names
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.counters import Counters
from sparklag_service.enrichment.cluster_offsets import MeasureTime, measured_partitions
from sparklag_service.enrichment.enricher import Enricher
from sparklag_service.evaluation.evaluator import EvaluatedQuery, Evaluator, unknown_event
from sparklag_service.evaluation.query_history import resume_history
from sparklag_service.tracking.query_state import QueryState
from sparklag_service.tracking.tracked_queries import TrackedQueries, TrackedQuery

_PARTITIONS_PER_PAUSE: Final = 100
"""Other tasks run after this many evaluated partitions."""


@dataclass(eq=False, repr=False)
class Evaluation:
    """Makes a lag event of each query that the enricher has measured."""

    settings: ResolvedSettings
    tracked: TrackedQueries
    enricher: Enricher
    counters: Counters
    measured_by: MeasuredBy
    offer: Callable[[LagEvent, QueryState, float], None]
    """Takes an event, the state it was measured from, and `time.monotonic()`."""
    _queries: dict[str, EvaluatedQuery] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settings = self.settings
        self._evaluator = Evaluator(
            self.measured_by,
            settings.latest_max_age_s,
            settings.thresholds_of,
            frozenset(
                alias
                for alias, cluster in settings.every_cluster.items()
                if cluster.groups.evaluator == "burrow"
            ),
            settings.cluster,
            own_topic_names(settings),
            settings.instance_name if self.measured_by == "service" else None,
        )

    async def run(self) -> None:
        since_pause = 0
        while True:
            states, requested_s = await self.enricher.next_measured()
            for state in states:
                query, last = self.tracked.record(state.query_id), self.last_event(state.query_id)
                since_pause += 1
                # The query may have been released, or measured in a newer state meanwhile.
                is_newest = last is None or last.observed_at <= state.observed_at
                if query is not None and is_newest:
                    at = MeasureTime(epoch_ms(), time.monotonic(), requested_s)
                    self._evaluate(query, state, at)
                    since_pause += query.partitions
                if since_pause >= _PARTITIONS_PER_PAUSE:
                    since_pause = 0
                    await asyncio.sleep(0)

    def adopt(self, event: LagEvent, at: MeasureTime) -> None:
        self._queries[event.query_id] = EvaluatedQuery(event, resume_history(event, at))

    def release(self, query_id: str) -> None:
        self._queries.pop(query_id, None)

    def last_event(self, query_id: str) -> LagEvent | None:
        """The newest event of a query, published or not."""
        last = self._queries.get(query_id)
        return None if last is None else last.event

    def _evaluate(self, query: TrackedQuery, state: QueryState, at: MeasureTime) -> None:
        if "enrichment" not in query.failures:
            try:
                self.offer(self._event(query, state, at), state, at.now_s)
            except Exception as error:
                self.tracked.failed(state, "evaluation", error)
            else:
                return
        event = unknown_event(
            state, self.measured_by, at.now_ms, event_id=str(uuid4()), reason=query.failure
        )
        self.offer(event, state, at.now_s)

    def _event(self, query: TrackedQuery, state: QueryState, at: MeasureTime) -> LagEvent:
        query_id, tracked = state.query_id, self.tracked
        tracked.admit(query, measured_partitions(state, self.enricher.offsets))
        covered = query.covered(state)
        evaluated = self._evaluator.evaluate(
            state,
            self.enricher.offsets,
            at,
            event_id=str(uuid4()),
            cause="refresh" if covered is None else covered.observation.cause,
            previous=self._queries.get(query_id),
            silent=tracked.is_silent(query),
        )
        tracked.recovered(query_id, "evaluation")
        self._queries[query_id] = evaluated
        self.counters.measured += 1
        if query.failure is not None:
            return replace(evaluated.event, status="UNKNOWN", reason=query.failure)
        if evaluated.event.status != "STOP":
            return evaluated.event
        # Anybody can write a message that is refused: it changes no status.
        since_s = time.monotonic() - self.settings.silent_after_s
        refusal = self.counters.refusals.of_query(query_id, since_s)
        if refusal is None:
            return evaluated.event
        reason = f"{evaluated.event.reason}; refused a {refusal}"
        return replace(evaluated.event, reason=reason)

"""The evaluation stage: enricher ──▶ evaluator ──▶ publisher."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import lru_cache
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
from sparklag_service.tracking.tracked_queries import TrackedQueries

_PARTITIONS_PER_PAUSE: Final = 100
"""After so many evaluated partitions others have the loop."""


class Evaluation:
    """Makes a lag event of each query that the enricher has measured."""

    def __init__(
        self,
        settings: ResolvedSettings,
        tracked: TrackedQueries,
        enricher: Enricher,
        counters: Counters,
        measured_by: MeasuredBy,
        *,
        offer: Callable[[LagEvent, QueryState, float], None],
    ) -> None:
        """`offer` takes an event, the state it was measured from, and `time.monotonic()`."""
        self._silent_after_s = settings.silent_after_s
        self._tracked = tracked
        self._enricher = enricher
        self._counters = counters
        self._measured_by = measured_by
        self._offer = offer
        self._last: dict[str, EvaluatedQuery] = {}
        self._evaluator = Evaluator(
            measured_by,
            settings.latest_max_age_s,
            lru_cache(4_096)(settings.thresholds_of),
            frozenset(
                alias
                for alias, cluster in settings.every_cluster.items()
                if cluster.groups.evaluator == "burrow"
            ),
            settings.cluster,
            own_topic_names(settings),
        )

    async def run(self) -> None:
        """Evaluate until cancelled."""
        since_pause = 0
        while True:
            measured = await self._enricher.next_measured()
            for state in measured.states:
                if self._is_current(state):
                    self._evaluate(
                        state, MeasureTime(epoch_ms(), time.monotonic(), measured.requested_s)
                    )
                since_pause += 1 + max(0, self._tracked.limits.admitted(state.query_id))
                if since_pause >= _PARTITIONS_PER_PAUSE:
                    since_pause = 0
                    await asyncio.sleep(0)

    def last_event(self, query_id: str) -> LagEvent | None:
        """The event that was made last, published or not."""
        last = self._last.get(query_id)
        return None if last is None else last.event

    def adopt(self, event: LagEvent, measure_time: MeasureTime) -> None:
        """Go on from another instance's event."""
        self._last[event.query_id] = EvaluatedQuery(event, resume_history(event, measure_time))

    def release(self, query_id: str) -> None:
        """Forget what the query did."""
        self._last.pop(query_id, None)

    def _is_current(self, state: QueryState) -> bool:
        """Whether the query is still tracked, and was not measured in a newer state meanwhile."""
        last = self.last_event(state.query_id)
        outdated = last is not None and last.observed_at > state.observed_at
        return state.query_id in self._tracked and not outdated

    def _evaluate(self, state: QueryState, measure_time: MeasureTime) -> None:
        failures = self._tracked.failures
        if not failures.failed_at(state.query_id, "enrichment"):
            try:
                self._offer(self._event(state, measure_time), state, measure_time.now_s)
            except Exception as error:
                failures.add(state, "evaluation", error)
            else:
                return
        reason = failures.reason(state.query_id)
        event_id = str(uuid4())
        event = unknown_event(
            state, self._measured_by, measure_time.now_ms, event_id=event_id, reason=reason
        )
        self._offer(event, state, measure_time.now_s)

    def _event(self, state: QueryState, measure_time: MeasureTime) -> LagEvent:
        query_id, tracked = state.query_id, self._tracked
        tracked.limits.admit(query_id, measured_partitions(state, self._enricher.offsets))
        covered = tracked.pending.covered(state)
        evaluated = self._evaluator.evaluate(
            state,
            self._enricher.offsets,
            measure_time,
            event_id=str(uuid4()),
            cause="refresh" if covered is None else covered.observation.cause,
            previous=self._last.get(query_id),
            silent=tracked.is_silent(state),
        )
        tracked.failures.recovered(query_id, "evaluation")
        self._last[query_id] = evaluated
        self._counters.measured += 1
        reason = tracked.failures.reason(query_id)
        if reason is not None:
            return replace(evaluated.event, status="UNKNOWN", reason=reason)
        if evaluated.event.status != "STOP":
            return evaluated.event
        # Anybody may have written a message that was refused: it changes no status.
        since_s = time.monotonic() - self._silent_after_s
        refusal = self._counters.refusals.of_query(query_id, since_s)
        if refusal is None:
            return evaluated.event
        reason = f"{evaluated.event.reason}; refused a {refusal}"
        return replace(evaluated.event, reason=reason)

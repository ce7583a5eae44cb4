"""The mirror: what queries have processed is committed to Kafka, each to the cluster it reads from.

So Kafka's own tools, and every tool that knows consumer groups, see a Spark query as one. It reads
what the tracker has and takes nothing from it: whatever is wrong here, lag goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from sparklag_schemas import ResolvedSettings
from sparklag_schemas.runtime.tasks import keep_on, run_together, with_pauses
from sparklag_service.counters import Counters
from sparklag_service.mirror.claims import Claims
from sparklag_service.mirror.cluster_mirror import ClusterMirror
from sparklag_service.mirror.plan import MirrorPlan, Position
from sparklag_service.tracking.query_state import QueryState
from sparklag_service.view.view import View

_log = logging.getLogger(__name__)

_BREATHE_QUERIES: Final = 200
_SHARE_OF_ENDING: Final = 0.2
"""Of the time there is to shut down, for the last commits."""
_CANCEL_AGAIN_S: Final = 1.0


class Mirror:
    """Commits while `run` runs, and once more at its end. `queries`: those that this instance
    measures, as they change; `keeps`: whether one is its own; `silent_s`: after how long without a
    word one is dead. Create it on its loop. Raises SettingsError."""

    def __init__(
        self,
        settings: ResolvedSettings,
        view: View,
        queries: Mapping[str, QueryState],
        keeps: Callable[[str], bool],
        silent_s: float,
        counters: Counters,
    ) -> None:
        self._interval_s = settings.mirror.interval_s
        self._last_s = _SHARE_OF_ENDING * settings.shutdown_timeout_s
        self._queries = queries
        self._keeps = keeps
        self._plan = MirrorPlan(settings.mirror)
        self._clusters = [
            ClusterMirror(
                alias,
                cluster.access,
                self._interval_s,
                Claims(self._plan, view, alias, silent_s),
                keeps,
                counters,
            )
            for alias, cluster in settings.every_cluster.items()
        ]

    @property
    def failing(self) -> Mapping[str, str]:
        """What cannot be committed, and why, in one line each."""
        failing: dict[str, str] = {}
        for cluster in self._clusters:
            failing.update(cluster.failures.reasons)
        return failing

    async def run(self) -> None:
        """Commit until cancelled; then what is new, bounded in time."""
        try:
            await run_together(
                *(
                    keep_on(
                        partial(self._commit_due, cluster),
                        f"mirror to Kafka cluster {cluster.alias}",
                        self._interval_s,
                    )
                    for cluster in self._clusters
                ),
                patience_s=_CANCEL_AGAIN_S,
            )
        finally:
            try:
                await asyncio.wait_for(self._commit_last(), self._last_s)
            except asyncio.TimeoutError:
                _log.warning("ended before all that was processed was mirrored")
            finally:
                await asyncio.gather(*(cluster.aclose() for cluster in self._clusters))

    async def _commit_due(self, cluster: ClusterMirror) -> None:
        await cluster.begin(await self._positions(cluster.alias))
        await asyncio.sleep(self._interval_s)

    async def _commit_last(self) -> None:
        ends = await asyncio.gather(
            *(self._commit_all(cluster) for cluster in self._clusters), return_exceptions=True
        )
        for error in ends:
            if error is not None:
                _log.error("the last commits of the mirror failed", exc_info=error)

    async def _commit_all(self, cluster: ClusterMirror) -> None:
        await cluster.ended()
        await cluster.begin(await self._positions(cluster.alias))
        await cluster.ended()

    async def _positions(self, cluster: str) -> list[Position]:
        positions = []
        async for state in with_pauses(list(self._queries.values()), _BREATHE_QUERIES):
            position = self._plan.position(state, cluster)
            if position is not None and self._keeps(position.query_id):
                positions.append(position)
        return positions

"""The mirror: commits what queries have processed to Kafka, each to the cluster it reads from.

So Kafka's own tools, and every tool that knows consumer groups, see a Spark query as a group. It
only reads from the tracker: a failure here does not affect the lag.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from sparklag_schemas import ResolvedSettings
from sparklag_schemas.runtime.tasks import repeat, run_together, with_pauses
from sparklag_service.counters import Counters
from sparklag_service.mirror.cluster_mirror import ClusterMirror
from sparklag_service.mirror.group_assignment import (
    GroupOwnership,
    MirroredPosition,
    MirrorPlan,
)
from sparklag_service.tracking.query_state import QueryState
from sparklag_service.view.view import View

_log = logging.getLogger(__name__)

_QUERIES_PER_PAUSE: Final = 200
_SHUTDOWN_SHARE: Final = 0.2
"""Of the time to shut down, for the last commits."""


class Mirror:
    """Commits while `run` runs, and once more at its end. `queries`: those that this instance
    tracks; `owns`: whether it owns a query. Create it on its loop. Raises SettingsError."""

    def __init__(
        self,
        settings: ResolvedSettings,
        view: View,
        queries: Mapping[str, QueryState],
        owns: Callable[[str], bool],
        counters: Counters,
    ) -> None:
        self._interval_s = settings.mirror.interval_s
        self._last_commits_s = _SHUTDOWN_SHARE * settings.shutdown_timeout_s
        self._queries = queries
        self._owns = owns
        self._plan = MirrorPlan(settings.mirror)
        self._clusters = [
            ClusterMirror(
                alias,
                cluster.access,
                GroupOwnership(self._plan, view, alias, settings.silent_after_s),
                owns,
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
                    repeat(
                        partial(self._commit_due, cluster),
                        f"mirror to Kafka cluster {cluster.alias}",
                        self._interval_s,
                    )
                    for cluster in self._clusters
                )
            )
        finally:
            last = asyncio.gather(*map(self._commit_last, self._clusters))
            try:
                await asyncio.wait_for(last, self._last_commits_s)
            except asyncio.TimeoutError:
                _log.warning("shut down before everything processed was mirrored")
            finally:
                await asyncio.gather(*(cluster.aclose() for cluster in self._clusters))

    async def _commit_due(self, cluster: ClusterMirror) -> None:
        await cluster.start_commits(await self._positions(cluster.alias))
        await asyncio.sleep(self._interval_s)

    async def _commit_last(self, cluster: ClusterMirror) -> None:
        try:
            await cluster.wait()
            await cluster.start_commits(await self._positions(cluster.alias))
            await cluster.wait()
        except Exception:
            _log.exception("the last commits to Kafka cluster %s failed", cluster.alias)

    async def _positions(self, cluster: str) -> list[MirroredPosition]:
        positions = []
        async for state in with_pauses(list(self._queries.values()), _QUERIES_PER_PAUSE):
            position = self._plan.position(state, cluster)
            if position is not None and self._owns(position.query_id):
                positions.append(position)
        return positions

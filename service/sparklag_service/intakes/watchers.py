"""The intakes beside the topic that the settings ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sparklag_schemas import ResolvedSettings
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_service.intakes import Delivery, Watcher
from sparklag_service.tracking.query_state import QueryState


def make_watchers(
    settings: ResolvedSettings,
    queue: NewestQueue[Delivery],
    owns: Callable[[str], bool],
    queries: Mapping[str, QueryState],
) -> list[Watcher]:
    """None where nothing is to be watched. `owns`: whether this instance looks after a query;
    `queries`: those it measures, as they change."""
    watchers: list[Watcher] = []
    if settings.checkpoint_patterns or settings.checkpoints.follow:
        # Loading what can read every store takes time: only where there is something to read.
        from sparklag_service.intakes.checkpoints import CheckpointIntake

        watchers.append(CheckpointIntake(settings, queue, owns, queries))
    for alias, cluster in settings.every_cluster.items():
        if cluster.groups.allow:
            from sparklag_service.intakes.groups import GroupIntake

            watchers.append(
                GroupIntake(
                    alias,
                    cluster.access,
                    cluster.groups,
                    settings.heartbeat_s,
                    queue,
                    owns,
                    remembered=lambda: [i for i, query in queries.items() if not query.ended],
                )
            )
    return watchers


def longest_interval_s(settings: ResolvedSettings) -> float:
    """Within which all that is watched is said again."""
    return max(
        settings.heartbeat_s,
        settings.checkpoints.interval_s,
        *(cluster.groups.interval_s for cluster in settings.every_cluster.values()),
    )

"""The intakes beside the topic that the settings ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sparklag_schemas import Settings
from sparklag_schemas.queue import NewestQueue
from sparklag_service.clusters import checkpoint_patterns
from sparklag_service.intakes import Delivery, Watcher
from sparklag_service.query_state import QueryState


def make_watchers(
    settings: Settings,
    bootstrap_servers: str,
    queue: NewestQueue[Delivery],
    owns: Callable[[str], bool],
    queries: Mapping[str, QueryState],
) -> list[Watcher]:
    """None where nothing is to be watched. `owns`: whether this instance looks after a query;
    `queries`: those it measures, as they change."""
    watchers: list[Watcher] = []
    if checkpoint_patterns(settings) or settings.checkpoints.follow:
        # Loading what can read every store takes time: only where there is something to read.
        from sparklag_service.intakes.checkpoints import CheckpointIntake

        watchers.append(CheckpointIntake(settings, queue, owns, queries))
    watched = [(settings.cluster, bootstrap_servers, settings.kafka, settings.groups)]
    for alias, cluster in settings.clusters.items():
        watched.append((alias, cluster.bootstrap_servers, cluster.kafka, cluster.groups))
    for alias, servers, kafka, groups in watched:
        if groups.allow:
            from sparklag_service.intakes.groups import GroupIntake

            watchers.append(
                GroupIntake(
                    alias,
                    servers,
                    kafka,
                    groups,
                    settings.heartbeat_s,
                    queue,
                    owns,
                    remembered=lambda: [i for i, query in queries.items() if not query.ended],
                )
            )
    return watchers


def longest_interval_s(settings: Settings) -> float:
    """Within which all that is watched is said again."""
    groups = [settings.groups, *(cluster.groups for cluster in settings.clusters.values())]
    return max(
        settings.heartbeat_s,
        settings.checkpoints.interval_s,
        *(group.interval_s for group in groups),
    )

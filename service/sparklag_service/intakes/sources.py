"""The kinds of sources other than the topic. Each kind makes the watchers that the settings need.

A new kind is one module: its watcher, and a call of `register_source` with its origin's traits. A
module of another distribution is named as an entry point of the group `sparklag.sources`. A module
of this package is imported in `_kinds`, and its origin is in
`sparklag_schemas.messages.enumerations`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Final

from sparklag_schemas import ResolvedSettings
from sparklag_schemas.messages.enumerations import OriginTraits, register_origin
from sparklag_schemas.runtime.tasks import cancel_and_wait, run_together
from sparklag_service.intakes import SourceContext, Watcher
from sparklag_service.supervision import Supervisor

_ENTRY_POINTS: Final = "sparklag.sources"


@dataclass(frozen=True)
class SourceKind:
    origin: str
    make_watchers: Callable[[SourceContext], Iterable[Watcher]]
    interval_s: Callable[[ResolvedSettings], float]
    """Returns the time between two reads of a query's position."""
    traits: OriginTraits | None = None
    """The origin's traits. None: `sparklag_schemas.messages.enumerations.ORIGINS` has them."""


def _checkpoint_watchers(context: SourceContext) -> Iterable[Watcher]:
    if context.settings.checkpoint_patterns or context.settings.checkpoints.follow:
        # The readers of all stores take time to import.
        from sparklag_service.intakes.checkpoints import CheckpointIntake

        yield CheckpointIntake(context)


def _group_watchers(context: SourceContext) -> Iterable[Watcher]:
    for alias, cluster in context.settings.every_cluster.items():
        if cluster.groups.allow:
            from sparklag_service.intakes.group_observations import GroupObservations
            from sparklag_service.intakes.groups import GroupIntake

            intake = GroupIntake(alias, cluster, GroupObservations(alias, context))
            context.group_poll_s[alias] = intake.poll_s
            yield intake


_SOURCES: dict[str, SourceKind] = {}


def register_source(kind: SourceKind) -> None:
    """Add a kind of source, or replace the kind of the same origin. Raises ValueError if the origin
    already has other traits."""
    if kind.traits is not None:
        register_origin(kind.origin, kind.traits)
    _SOURCES[kind.origin] = kind


register_source(
    SourceKind("checkpoint", _checkpoint_watchers, lambda settings: settings.checkpoints.interval_s)
)
register_source(
    SourceKind(
        "group",
        _group_watchers,
        lambda settings: max(c.groups.interval_s for c in settings.every_cluster.values()),
    )
)


@cache
def _kinds() -> Iterable[SourceKind]:
    """Those registered above, and by the modules that are imported here at the first call."""
    for entry_point in entry_points(group=_ENTRY_POINTS):
        entry_point.load()
    return _SOURCES.values()


class Watchers:
    """The watchers of every kind, as one task that can be stopped before other tasks."""

    def __init__(self, context: SourceContext, supervisor: Supervisor) -> None:
        self._watchers = [w for kind in _kinds() for w in kind.make_watchers(context)]
        self._supervisor = supervisor
        self._running: asyncio.Task[None] | None = None

    @property
    def failing(self) -> Mapping[str, str]:
        return {what: why for watcher in self._watchers for what, why in watcher.failing.items()}

    async def run(self) -> None:
        """Read until cancelled, or stopped."""
        keep = self._supervisor.keep
        watchers = (keep(watcher.name, watcher.run) for watcher in self._watchers)
        self._running = asyncio.create_task(run_together(*watchers))
        try:
            await asyncio.wait({self._running})
            if not self._running.cancelled():
                self._running.result()
        finally:
            await self.stop()
        await asyncio.get_running_loop().create_future()

    async def stop(self) -> None:
        if self._running is not None:
            await cancel_and_wait(self._running)


def longest_interval_s(settings: ResolvedSettings) -> float:
    """The longest time between two observations of a readable query."""
    return max(settings.heartbeat_s, *(kind.interval_s(settings) for kind in _kinds()))

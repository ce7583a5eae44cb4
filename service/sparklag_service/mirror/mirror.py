"""The mirror: commits the positions of queries to their own consumer groups."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

from sparklag_kafka.brokers.group_offsets import (
    CoordinatorTasks,
    commit_offsets,
    fetch_offsets,
    find_coordinators,
)
from sparklag_kafka.brokers.pool import BrokerConnection, BrokerPool
from sparklag_kafka.errors import KAFKA_FAILURES, NONE, UNKNOWN_GROUP, broker_error_text
from sparklag_kafka.protocol.groups import CommittedGroup, OffsetFetchResponse
from sparklag_schemas import Offsets, ResolvedSettings
from sparklag_schemas.runtime.queue import by_count
from sparklag_schemas.runtime.tasks import repeat, run_together, with_pauses
from sparklag_service.counters import Counters
from sparklag_service.intakes.group_commits import ClusterFailures, CommitMetadata
from sparklag_service.mirror.commits import (
    CommitOutcome,
    GroupOwnership,
    MirroredPosition,
    MirrorPlan,
    commit_outcome,
    decide_commit,
    group_outcome,
)
from sparklag_service.tracking.query_state import QueryState
from sparklag_service.view.view import View

_GROUPS_PER_BATCH: Final = 100
"""Groups that are read, then committed to, before the next groups are read."""
_IN_FLIGHT: Final = 25
"""Concurrent commits on one connection: a broker executes them in sequence, and the last one must
also respond in time."""
_PositionsByGroup = Mapping[str, Sequence[MirroredPosition]]
"""Positions by group: several queries may use one group."""


@dataclass(eq=False, repr=False)
class ClusterMirror:
    """Commits to the groups on one Kafka cluster. `owns` returns whether this instance still owns a
    query. Create it on the loop it runs on. Raises SettingsError."""

    alias: str
    _brokers: BrokerPool
    _ownership: GroupOwnership
    _owns: Callable[[str], bool]
    _counters: Counters
    _coordinators: dict[str, int] = field(default_factory=dict)
    _decoded: dict[int, dict[OffsetFetchResponse, Mapping[str, CommittedGroup]]] = field(
        default_factory=dict
    )
    """The last responses of each coordinator."""

    def __post_init__(self) -> None:
        self.failures = ClusterFailures(self.alias, "mirror", "is committed to again")
        self.commits = CoordinatorTasks("committing to groups of")

    async def start_commits(self, positions: Sequence[MirroredPosition]) -> None:
        """Start to commit the positions that are due, on each coordinator without earlier commits
        in flight."""
        by_group: dict[str, list[MirroredPosition]] = {}
        for position in positions:
            by_group.setdefault(position.group, []).append(position)
        await self._find_coordinators(by_group)
        by_coordinator: dict[int, dict[str, list[MirroredPosition]]] = {}
        for group, node_id in self._coordinators.items():
            by_coordinator.setdefault(node_id, {})[group] = by_group[group]
        kept = {*map(self.failures.broker, by_coordinator), *map(self.failures.group, by_group)}
        if by_group:
            kept.add(self.failures.cluster)
        self.failures.retain(kept)
        for node_id, groups in by_coordinator.items():
            self.commits.start(node_id, partial(self._commit_on, node_id, groups))

    async def aclose(self) -> None:
        """Cancel the commits in flight and close the connections; bounded in time."""
        await self.commits.aclose()
        await self._brokers.aclose()

    async def _find_coordinators(self, groups: Collection[str]) -> None:
        self._coordinators = {g: n for g, n in self._coordinators.items() if g in groups}
        unknown = [group for group in groups if group not in self._coordinators]
        if not unknown:
            return
        responded = False
        failing: dict[str, str] = {}
        async for group, node_id, error_code in find_coordinators(self._brokers, unknown):
            responded = True
            if error_code:
                self._record(group, group_outcome(error_code), failing)
            else:
                self._coordinators[group] = node_id
        if not responded:
            self._counters.mirror_failures += 1
            if self.failures.cluster not in self.failures.reasons:
                reason = await self._brokers.explain_unreachable()
                self.failures.add(self.failures.cluster, f"nothing is mirrored to it, {reason}")
            return
        self.failures.add_groups(failing)
        self.failures.recover(self.failures.cluster)
        # A coordinator may be new, or its node id may have a new address.
        await self._brokers.refresh()

    async def _commit_on(self, node_id: int, by_group: _PositionsByGroup) -> None:
        connection = self._brokers.connection(node_id)
        if connection is None:
            # The broker left the cluster, or joined only now.
            self._forget_coordinators(by_group)
            return
        key = self.failures.broker(node_id)
        previous, self._decoded[node_id] = self._decoded.get(node_id, {}), {}
        try:
            for groups in by_count(by_group, _GROUPS_PER_BATCH):
                responses = await fetch_offsets(connection, groups, previous)
                self._decoded[node_id] |= responses
                committed = {g: c for response in responses.values() for g, c in response.items()}
                await self._commit_batch(connection, by_group, committed)
        except KAFKA_FAILURES as error:
            reason = broker_error_text(node_id, error, self._brokers.timeout_s)
            self.failures.add(key, f"{reason}; groups not mirrored: {len(by_group)}")
            self._counters.mirror_failures += 1
            self._forget_coordinators(by_group)
        else:
            self.failures.recover(key)

    async def _commit_batch(
        self,
        connection: BrokerConnection,
        by_group: _PositionsByGroup,
        committed: Mapping[str, CommittedGroup],
    ) -> None:
        failing: dict[str, str] = {}
        commits: dict[str, tuple[MirroredPosition, Offsets]] = {}
        for group, current in committed.items():
            for position in by_group.get(group, ()):
                offsets = self._decide(position, current, failing)
                # The next round decides on other queries of the group: they must see this commit.
                if offsets and group not in commits:
                    commits[group] = (position, offsets)
                await asyncio.sleep(0)
        for chunk in by_count(commits.values(), _IN_FLIGHT):
            results = await asyncio.gather(
                *(self._commit(connection, *commit, failing) for commit in chunk),
                return_exceptions=True,
            )
            for error in filter(None, results):
                raise error
        for group in committed.keys() - failing.keys():
            self.failures.recover(self.failures.group(group))
        self.failures.add_groups(failing)

    def _decide(
        self, position: MirroredPosition, committed: CommittedGroup, failing: dict[str, str]
    ) -> Offsets:
        errors = [
            code for topic in committed.topics.values() for code in topic.error_codes.values()
        ]
        if committed.error_code not in (NONE, UNKNOWN_GROUP) or errors:
            outcome = group_outcome(committed.error_code or errors[0])
            self._record(position.group, outcome, failing)
            return {}
        decision = decide_commit(position, committed.topics, self._ownership)
        if decision.refused is not None:
            outcome = CommitOutcome(False, decision.refused, refused=True)
            self._record(position.group, outcome, failing)
        self._counters.mirror_superseded += decision.superseded
        return decision.offsets

    async def _commit(
        self,
        connection: BrokerConnection,
        position: MirroredPosition,
        offsets: Offsets,
        failing: dict[str, str],
    ) -> None:
        if not self._owns(position.query_id):
            return
        metadata = CommitMetadata(position.observed_at_ms, position.query_id).text
        outcome = commit_outcome(
            offsets, await commit_offsets(connection, position.group, offsets, metadata)
        )
        self._counters.mirror_commits += outcome.committed
        self._record(position.group, outcome, failing)

    def _record(self, group: str, outcome: CommitOutcome, failing: dict[str, str]) -> None:
        if outcome.reason is None:
            return
        failing.setdefault(group, outcome.reason)
        if outcome.moved:
            self._coordinators.pop(group, None)
        if outcome.refused:
            self._counters.mirror_refused += 1
        else:
            self._counters.mirror_failures += 1

    def _forget_coordinators(self, groups: Collection[str]) -> None:
        for group in groups:
            self._coordinators.pop(group, None)


_log = logging.getLogger(__name__)
_QUERIES_PER_PAUSE: Final = 200
_SHUTDOWN_SHARE: Final = 0.2
"""The share of `shutdown_timeout_s` for the last commits."""


@dataclass(eq=False, repr=False)
class Mirror:
    """Commits while `run` runs, and once more at its end. `queries`: those that this instance
    tracks. Create it on the loop it runs on. Raises SettingsError."""

    _settings: ResolvedSettings
    _view: View
    _queries: Mapping[str, QueryState]
    _owns: Callable[[str], bool]
    _counters: Counters

    def __post_init__(self) -> None:
        settings = self._settings
        self._interval_s = settings.mirror.interval_s
        self._plan = MirrorPlan(settings.mirror)
        self._clusters = []
        for alias, cluster in settings.every_cluster.items():
            owners = GroupOwnership(self._plan, self._view, alias, settings.silent_after_s)
            pool = BrokerPool(cluster.access)
            self._clusters.append(ClusterMirror(alias, pool, owners, self._owns, self._counters))

    @property
    def failing(self) -> Mapping[str, str]:
        """Why positions cannot be committed, one line each."""
        return dict(chain.from_iterable(c.failures.reasons.items() for c in self._clusters))

    async def run(self) -> None:
        """Commit until cancelled; then commit the newest positions, bounded in time."""
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
                await asyncio.wait_for(last, _SHUTDOWN_SHARE * self._settings.shutdown_timeout_s)
            except asyncio.TimeoutError:
                _log.warning("shut down before everything processed was mirrored")
            finally:
                await asyncio.gather(*(cluster.aclose() for cluster in self._clusters))

    async def _commit_due(self, cluster: ClusterMirror) -> None:
        await cluster.start_commits(await self._positions(cluster.alias))
        await asyncio.sleep(self._interval_s)

    async def _commit_last(self, cluster: ClusterMirror) -> None:
        try:
            await cluster.commits.wait()
            await cluster.start_commits(await self._positions(cluster.alias))
            await cluster.commits.wait()
        except Exception:
            _log.exception("the last commits to Kafka cluster %s failed", cluster.alias)

    async def _positions(self, cluster: str) -> list[MirroredPosition]:
        positions = []
        async for state in with_pauses(list(self._queries.values()), _QUERIES_PER_PAUSE):
            position = self._plan.position(state, cluster)
            if position is not None and self._owns(position.query_id):
                positions.append(position)
        return positions

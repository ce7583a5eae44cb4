"""Commits to the groups of one Kafka cluster, by the coordinators of the groups.

A coordinator first returns what its groups have committed: see `commit_decision`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from sparklag_kafka.brokers.connection import BrokerConnection
from sparklag_kafka.brokers.group_offsets import (
    CoordinatorTasks,
    commit_offsets,
    fetch_offsets,
    find_coordinators,
)
from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.errors import KAFKA_FAILURES, broker_error_text
from sparklag_kafka.protocol.error_codes import NONE, UNKNOWN_GROUP
from sparklag_kafka.protocol.offset_fetch import CommittedGroup
from sparklag_schemas import ClusterAccess, Offsets
from sparklag_schemas.runtime.chunks import by_count
from sparklag_schemas.runtime.tasks import with_pauses
from sparklag_service.counters import Counters
from sparklag_service.intakes.group_offsets.cluster_failures import ClusterFailures
from sparklag_service.intakes.group_offsets.commit_metadata import CommitMetadata
from sparklag_service.mirror.commit_decision import decide_commit
from sparklag_service.mirror.commit_results import (
    CommitOutcome,
    CommitSchedule,
    commit_outcome,
    group_outcome,
)
from sparklag_service.mirror.group_assignment import GroupOwnership, MirroredPosition

_GROUPS_PER_BATCH: Final = 100
"""Groups that are read together, and committed to before others are read."""
_IN_FLIGHT: Final = 25
"""Commits on one connection: a broker executes them one by one, and the last one needs its response
in time too."""
_POSITIONS_PER_PAUSE: Final = 500


class ClusterMirror:
    """`owns`: whether a query is still this instance's. Create it on its loop. Raises
    SettingsError."""

    def __init__(
        self,
        alias: str,
        access: ClusterAccess,
        interval_s: float,
        ownership: GroupOwnership,
        owns: Callable[[str], bool],
        counters: Counters,
    ) -> None:
        self.alias = alias
        self.failures = ClusterFailures(alias, "mirror", "is committed to again")
        self._ownership = ownership
        self._owns = owns
        self._counters = counters
        self._brokers = BrokerPool(access)
        self._schedule = CommitSchedule(interval_s)
        self._coordinators: dict[str, int] = {}
        self._failing_brokers: set[int] = set()
        self._commits = CoordinatorTasks("committing to groups of")

    async def start_commits(self, positions: Sequence[MirroredPosition]) -> None:
        """Start to commit what is due of these, which are all there are, on each coordinator that
        is not busy with earlier commits."""
        self._retain(positions)
        now_s = time.monotonic()
        due = [
            position
            async for position in with_pauses(positions, _POSITIONS_PER_PAUSE)
            if self._schedule.is_due(position, now_s)
        ]
        await self._find_coordinators(due)
        for node_id in self._failing_brokers - set(self._coordinators.values()):
            self.failures.discard(self.failures.broker(node_id))
            self._failing_brokers.discard(node_id)
        by_coordinator: dict[int, list[MirroredPosition]] = {}
        for position in due:
            coordinator = self._coordinators.get(position.group)
            if coordinator is not None:
                by_coordinator.setdefault(coordinator, []).append(position)
        for node_id, led in by_coordinator.items():
            self._commits.start(node_id, partial(self._commit_on, node_id, led))

    async def wait(self) -> None:
        """Return when no commit is in flight."""
        await self._commits.wait()

    async def aclose(self) -> None:
        """Cancel what is in flight and close the connections; bounded in time."""
        await self._commits.aclose()
        await self._brokers.aclose()

    def _retain(self, positions: Sequence[MirroredPosition]) -> None:
        for group in self._schedule.retain(positions):
            if self._schedule.reason(group) is None:
                self.failures.discard(self.failures.group(group))
            self._coordinators.pop(group, None)
        if not positions:
            self.failures.discard(*self.failures.reasons)

    async def _find_coordinators(self, positions: Sequence[MirroredPosition]) -> None:
        """Of the groups whose coordinators are unknown."""
        by_group: dict[str, list[MirroredPosition]] = {}
        for position in positions:
            if position.group not in self._coordinators:
                by_group.setdefault(position.group, []).append(position)
        if not by_group:
            return
        responded = False
        async for group, node_id, error_code in find_coordinators(self._brokers, list(by_group)):
            responded = True
            if not error_code:
                self._coordinators[group] = node_id
                continue
            for position in by_group[group]:
                self._record_failure(position, group_outcome(error_code))
        if not responded:
            self._counters.mirror_failures += 1
            if self.failures.cluster not in self.failures.reasons:
                reason = await self._brokers.explain_unreachable()
                self.failures.add(self.failures.cluster, f"nothing is mirrored to it, {reason}")
            return
        self._report(group for group in by_group if group not in self._coordinators)
        self.failures.recover(self.failures.cluster)
        if self._failing_brokers or not self._brokers.brokers.keys() >= {
            *self._coordinators.values()
        }:
            await self._brokers.refresh()

    async def _commit_on(self, node_id: int, positions: Sequence[MirroredPosition]) -> None:
        connection = self._brokers.connection(node_id)
        if connection is None:
            # It has left the cluster, or has just joined.
            self._forget_coordinators(positions)
            return
        key = self.failures.broker(node_id)
        try:
            for batch in by_count(positions, _GROUPS_PER_BATCH):
                await self._commit_batch(connection, batch)
        except KAFKA_FAILURES as error:
            reason = broker_error_text(node_id, error, self._brokers.timeout_s)
            self.failures.add(key, f"{reason}; groups not mirrored: {len(positions)}")
            self._counters.mirror_failures += 1
            self._failing_brokers.add(node_id)
            self._forget_coordinators(positions)
        else:
            self.failures.recover(key)
            self._failing_brokers.discard(node_id)

    async def _commit_batch(
        self, connection: BrokerConnection, positions: Sequence[MirroredPosition]
    ) -> None:
        requested_s = time.monotonic()
        responses = await fetch_offsets(connection, list({p.group: None for p in positions}))
        committed = {group: c for groups in responses.values() for group, c in groups.items()}
        commits: dict[str, tuple[MirroredPosition, Offsets]] = {}
        for position in positions:
            # Another query of the same group is next time's: it has to see this one's commit.
            if position.group in committed and position.group not in commits:
                offsets = self._decide(position, committed[position.group], requested_s)
                if offsets:
                    commits[position.group] = (position, offsets)
                await asyncio.sleep(0)
        try:
            for chunk in by_count(commits.values(), _IN_FLIGHT):
                results = await asyncio.gather(
                    *(self._commit(connection, *commit, requested_s) for commit in chunk),
                    return_exceptions=True,
                )
                for error in filter(None, results):
                    raise error
        finally:
            self._report(committed)

    def _decide(
        self, position: MirroredPosition, committed: CommittedGroup, now_s: float
    ) -> Offsets:
        """What of the position is to be committed."""
        errors = [
            code for topic in committed.topics.values() for code in topic.error_codes.values()
        ]
        if committed.error_code not in (NONE, UNKNOWN_GROUP) or errors:
            self._record_failure(position, group_outcome(committed.error_code or errors[0]))
            return {}
        renew = self._schedule.is_renewal_due(position, now_s)
        decision = decide_commit(position, committed.topics, self._ownership, renew=renew)
        if decision.refused is not None:
            self._record_failure(position, CommitOutcome(False, decision.refused, refused=True))
        elif decision.superseded:
            self._counters.mirror_superseded += 1
            self._schedule.back_off(position, now_s, None)
        elif not decision.offsets:
            self._schedule.committed(position, now_s)
        return decision.offsets

    async def _commit(
        self,
        connection: BrokerConnection,
        position: MirroredPosition,
        offsets: Offsets,
        now_s: float,
    ) -> None:
        if not self._owns(position.query_id):
            return
        metadata = CommitMetadata(position.observed_at_ms, position.query_id).text
        codes = await commit_offsets(connection, position.group, offsets, metadata)
        outcome = commit_outcome(offsets, codes)
        self._counters.mirror_commits += outcome.committed
        if outcome.reason is None:
            renewed = self._schedule.is_renewal_due(position, now_s)
            self._schedule.committed(position, now_s, renewed=renewed)
        else:
            self._record_failure(position, outcome)

    def _record_failure(self, position: MirroredPosition, outcome: CommitOutcome) -> None:
        now_s = time.monotonic()
        if outcome.moved:
            self._coordinators.pop(position.group, None)
        if outcome.refused:
            self._counters.mirror_refused += 1
            self._schedule.back_off(position, now_s, outcome.reason)
        elif outcome.reason is not None:
            self._counters.mirror_failures += 1
            retry_soon = outcome.retry_soon
            self._schedule.failed(position, now_s, outcome.reason, retry_soon=retry_soon)

    def _report(self, groups: Iterable[str]) -> None:
        """Report why these are not committed to, or that they are again."""
        failing: dict[str, str] = {}
        for group in groups:
            reason = self._schedule.reason(group)
            if reason is None:
                self.failures.recover(self.failures.group(group))
            else:
                failing[group] = reason
        self.failures.add_groups(failing)

    def _forget_coordinators(self, positions: Sequence[MirroredPosition]) -> None:
        for position in positions:
            self._coordinators.pop(position.group, None)

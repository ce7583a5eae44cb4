"""Commits to the groups of one Kafka cluster: each coordinating broker, and each group, by itself.

A broker is asked first what the groups that it coordinates have committed: see `verdict`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from sparklag_kafka.brokers.connection import BrokerConnection
from sparklag_kafka.brokers.group_offsets import coordinators, fetch_offsets
from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.errors import KAFKA_FAILURES, broker_error_text
from sparklag_kafka.protocol.offset_commit import OffsetCommitRequest
from sparklag_kafka.protocol.offset_fetch import GroupAnswer
from sparklag_schemas import ClusterAccess, Offsets
from sparklag_schemas.runtime.chunks import by_count
from sparklag_schemas.runtime.tasks import end, with_pauses
from sparklag_service.counters import Counters
from sparklag_service.intakes.group_offsets.failures import NO_SUCH_GROUP, Failures
from sparklag_service.mirror.attempts import Attempts
from sparklag_service.mirror.claims import Claims
from sparklag_service.mirror.commit_outcome import Outcome, commit_outcome, group_outcome
from sparklag_service.mirror.mark import Mark
from sparklag_service.mirror.plan import Position
from sparklag_service.mirror.verdict import judge

_log = logging.getLogger(__name__)

_AT_ONCE: Final = 100
"""Groups that are read together, and committed to before others are read."""
_IN_FLIGHT: Final = 25
"""Commits on one connection: a broker takes one after the other, and the last is to be answered in
time too."""
_BREATHE_GROUPS: Final = 500
_CANCEL_AGAIN_S: Final = 1.0


class ClusterMirror:
    """`keeps`: whether a query is this instance's still. Create it on its loop. Raises
    SettingsError."""

    def __init__(
        self,
        alias: str,
        access: ClusterAccess,
        interval_s: float,
        claims: Claims,
        keeps: Callable[[str], bool],
        counters: Counters,
    ) -> None:
        self.alias = alias
        self.failures = Failures(alias, "mirror", "is committed to again")
        self._claims = claims
        self._keeps = keeps
        self._counters = counters
        self._brokers = BrokerPool(access)
        self._attempts = Attempts(interval_s)
        self._nodes: dict[str, int] = {}
        self._failing_nodes: set[int] = set()
        self._committing: dict[int, asyncio.Task[None]] = {}

    async def begin(self, positions: Sequence[Position]) -> None:
        """Begin to commit what is due of these, all there are, on each broker that has answered."""
        self._forget_others(positions)
        now_s = time.monotonic()
        due = [
            position
            async for position in with_pauses(positions, _BREATHE_GROUPS)
            if self._attempts.is_due(position, now_s)
        ]
        await self._place(due)
        for failing in self._failing_nodes - set(self._nodes.values()):
            self.failures.drop(self.failures.broker(failing))
            self._failing_nodes.discard(failing)
        by_node: dict[int, list[Position]] = {}
        for position in due:
            node = self._nodes.get(position.group)
            if node is not None:
                by_node.setdefault(node, []).append(position)
        for node, some in by_node.items():
            if node not in self._committing:
                task = asyncio.create_task(self._commit_on(node, some))
                self._committing[node] = task
                task.add_done_callback(partial(self._ended, node))

    async def ended(self) -> None:
        """Return when no broker is waited for."""
        while self._committing:
            await asyncio.wait(self._committing.values())

    async def aclose(self) -> None:
        """End what is under way and close the connections; bounded in time."""
        await end(*self._committing.values(), patience_s=_CANCEL_AGAIN_S)
        await self._brokers.aclose()

    def _forget_others(self, positions: Sequence[Position]) -> None:
        for group in self._attempts.keep(positions):
            if self._attempts.reason(group) is None:
                self.failures.drop(self.failures.group(group))
            self._nodes.pop(group, None)
        if not positions:
            self.failures.drop(*self.failures.reasons)

    def _ended(self, node: int, task: asyncio.Task[None]) -> None:
        del self._committing[node]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("committing on broker %s was given up", node, exc_info=error)

    async def _place(self, due: Sequence[Position]) -> None:
        """Find out who coordinates the groups of these, where that is not known."""
        by_group: dict[str, list[Position]] = {}
        for position in due:
            if position.group not in self._nodes:
                by_group.setdefault(position.group, []).append(position)
        if not by_group:
            return
        answered = False
        async for found in coordinators(self._brokers, list(by_group)):
            answered = True
            if not found.error_code:
                self._nodes[found.group] = found.node
                continue
            for position in by_group.get(found.group, ()):
                self._take(position, group_outcome(found.error_code))
        if not answered:
            await self._say_away()
            return
        self._say(group for group in by_group if group not in self._nodes)
        self.failures.end(self.failures.cluster)
        nodes = set(self._nodes.values())
        if self._failing_nodes or any(self._brokers.connection(node) is None for node in nodes):
            await self._brokers.refresh()

    async def _say_away(self) -> None:
        self._counters.mirror_failures += 1
        if self.failures.cluster not in self.failures.reasons:
            why = f"nothing is mirrored to it, {await self._brokers.explain_unreachable()}"
            self.failures.begin(self.failures.cluster, why)

    async def _commit_on(self, node: int, positions: Sequence[Position]) -> None:
        connection = self._brokers.connection(node)
        if connection is None:
            # It has left the cluster, or has just come.
            self._misplaced(positions)
            return
        what = self.failures.broker(node)
        try:
            for some in by_count(positions, _AT_ONCE):
                await self._commit_together(connection, some)
        except KAFKA_FAILURES as error:
            why = broker_error_text(node, error, self._brokers.timeout_s)
            self.failures.begin(what, f"{why}; groups not mirrored: {len(positions)}")
            self._counters.mirror_failures += 1
            self._failing_nodes.add(node)
            self._misplaced(positions)
        else:
            self.failures.end(what)
            self._failing_nodes.discard(node)

    async def _commit_together(
        self, connection: BrokerConnection, positions: Sequence[Position]
    ) -> None:
        began_s = time.monotonic()
        said: dict[str, GroupAnswer] = {}
        for answer in await fetch_offsets(connection, list({p.group: None for p in positions})):
            for found in answer.read({}):
                if found is None:
                    await asyncio.sleep(0)
                else:
                    said[found.group] = found
        commits: dict[str, tuple[Position, Offsets]] = {}
        for position in positions:
            # Another of the same group comes next time: it is to see what this one does.
            if position.group in said and position.group not in commits:
                offsets = self._to_commit(position, said[position.group], began_s)
                if offsets:
                    commits[position.group] = (position, offsets)
                await asyncio.sleep(0)
        try:
            for some in by_count(commits.values(), _IN_FLIGHT):
                ends = await asyncio.gather(
                    *(self._commit(connection, *commit, began_s) for commit in some),
                    return_exceptions=True,
                )
                for error in filter(None, ends):
                    raise error
        finally:
            self._say(said)

    def _to_commit(self, position: Position, found: GroupAnswer, now_s: float) -> Offsets:
        """What of it may and must be committed to its group, of which `found` was said."""
        failed = [code for topic in found.topics.values() for code in topic.failed.values()]
        if found.error_code not in (0, NO_SUCH_GROUP) or failed:
            self._take(position, group_outcome(found.error_code or failed[0]))
            return {}
        renew = self._attempts.renews(position, now_s)
        verdict = judge(position, found.topics, self._claims, renew=renew)
        if verdict.offsets:
            return verdict.offsets
        if verdict.refused is not None:
            self._take(position, Outcome(False, verdict.refused, refused=True))
        elif verdict.superseded:
            self._counters.mirror_superseded += 1
            self._attempts.stands_back(position, now_s, None)
        else:
            self._attempts.done(position, now_s)
        return {}

    async def _commit(
        self, connection: BrokerConnection, position: Position, offsets: Offsets, now_s: float
    ) -> None:
        if not self._keeps(position.query_id):
            return
        mark = Mark(position.observed_at_ms, position.query_id).text
        answer = await connection.send(OffsetCommitRequest(position.group, offsets, mark))
        outcome = commit_outcome(offsets, answer.read())
        self._counters.mirror_commits += outcome.committed
        if outcome.reason is None:
            renewed = self._attempts.renews(position, now_s)
            self._attempts.done(position, now_s, renewed=renewed)
        else:
            self._take(position, outcome)

    def _take(self, position: Position, outcome: Outcome) -> None:
        """Something is wrong with a group."""
        now_s = time.monotonic()
        if outcome.moved:
            self._nodes.pop(position.group, None)
        if outcome.refused:
            self._counters.mirror_refused += 1
            self._attempts.stands_back(position, now_s, outcome.reason)
        elif outcome.reason is not None:
            self._counters.mirror_failures += 1
            self._attempts.failed(position, now_s, outcome.reason, soon=outcome.soon)

    def _say(self, groups: Iterable[str]) -> None:
        """What is wrong with these, where anything is."""
        failing: dict[str, str] = {}
        for group in groups:
            reason = self._attempts.reason(group)
            if reason is None:
                self.failures.end(self.failures.group(group))
            else:
                failing[group] = reason
        self.failures.begin_groups(failing)

    def _misplaced(self, positions: Sequence[Position]) -> None:
        for position in positions:
            self._nodes.pop(position.group, None)

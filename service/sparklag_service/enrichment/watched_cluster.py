"""One Kafka cluster that queries read from: its brokers, its topics, and who leads what.

Whatever is wrong with a broker of it costs that broker's partitions, and no other cluster's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Final

from sparklag_kafka.brokers.leader_channel import Hold, LeaderChannel
from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.protocol.list_offsets import EARLIEST, LATEST, TopicPart
from sparklag_kafka.protocol.metadata import Address, MetadataResponse
from sparklag_schemas import ClusterAccess, IsolationLevel, Settings
from sparklag_schemas.runtime.tasks import keep_on, run_together, until_set
from sparklag_service.enrichment.cluster_offsets import ClusterOffsets
from sparklag_service.enrichment.offset_table import OffsetTable, Plan
from sparklag_service.tracking.query_state import QueryState

_log = logging.getLogger(__name__)

_METADATA_TOPICS: Final = 100
"""Topics in one metadata request."""
_BREATHE_PARTITIONS: Final = 1_000
"""The loop is let go after so many partitions of a metadata answer."""
_SOON_S: Final = 2.0
"""When to look again at what is missing, leaderless, or does not answer."""
_AT_ONCE_S: Final = 0.5
"""How often a topic may be looked at because a leader says that its metadata is stale."""
_NEW_TOPIC_PATIENCE_S: Final = 2.0
_FORGET_S: Final = 300.0
_TIDY_S: Final = 60.0
_CLOSE_S: Final = 5.0
CANCEL_AGAIN_S: Final = 1.0
_EXPLAIN_AGAIN_S: Final = 30.0


class WatchedCluster:
    """Keeps `offsets` of what queries ask for, while `run` runs. Create it on its loop."""

    def __init__(self, alias: str, access: ClusterAccess, settings: Settings) -> None:
        self.alias = alias
        self.unreachable: str | None = "no broker was asked yet"
        """Why no broker of it answers; None when one does."""
        self.pool = BrokerPool(access, settings.measure_timeout_s)
        """Its shared connections are for all but latest offsets, which nothing else may delay."""
        self._settings = settings
        self._table = OffsetTable(alias)
        self._plans: dict[str, Plan] = {}
        self._channels: dict[int, LeaderChannel] = {}
        self._earliest_channels: dict[int, LeaderChannel] = {}
        self._turn = asyncio.Lock()
        self._due_s: dict[str, float] = {}
        self._learned_s: dict[str, float] = {}
        self._brokers_due_s = 0.0
        self._learn_now = asyncio.Event()
        self._is_away = False
        self._unplaced: list[_Unplaced] = []
        self._explaining: asyncio.Task[None] | None = None

    @property
    def offsets(self) -> ClusterOffsets:
        """What the cluster said last."""
        return self._table.offsets

    def leader(self, topic: str, partition: int) -> Address | None:
        """Where the partition's leader is; None where it has none."""
        return self._table.leader(topic, partition)

    async def run(self) -> None:
        """Keep metadata and earliest offsets up to date until cancelled."""
        cluster = f"Kafka cluster {self.alias}"
        await run_together(
            keep_on(self._learn_due, cluster, _SOON_S),
            keep_on(self._refresh_earliest, cluster, _SOON_S),
            keep_on(self._forget_unasked, cluster, _SOON_S),
            patience_s=CANCEL_AGAIN_S,
        )

    async def aclose(self) -> None:
        """Close the connections; bounded in time."""
        closing = [asyncio.ensure_future(self._close_all(list(self._channels)))]
        if self._explaining is not None:
            self._explaining.cancel()
            closing.append(self._explaining)
        closing.append(asyncio.ensure_future(self.pool.aclose()))
        await asyncio.wait(closing, timeout=_CLOSE_S)
        self._let_go()

    def ask(self, state: QueryState, hold: Hold) -> None:
        """Measure what `state` needs here; each leader that is worth waiting for holds `hold`."""
        plan = self._plans.get(state.query_id)
        if plan is None or plan.state is not state or plan.epoch != self._table.epoch:
            plan = self._make_plan(state)
        plan.asked_s = time.monotonic()
        if plan.unknown:
            self.offsets.unknown.update(plan.unknown)
        self._ask_leaders(plan, hold)
        if plan.without_position and self._is_away:
            self._fail_unplaced(plan)
        elif plan.without_position:
            waiting = _Unplaced(plan, hold)
            hold.take()
            self._unplaced.append(waiting)
            asyncio.get_running_loop().call_later(
                min(_NEW_TOPIC_PATIENCE_S, self._settings.measure_timeout_s),
                self._wait_no_more,
                waiting,
            )

    def answered(
        self, level: IsolationLevel, parts: list[TopicPart], answer: bytes, asked_s: float
    ) -> set[str]:
        """A leader's latest offsets have come."""
        self._hear()
        now_s = time.monotonic()
        stale, doubtful = self._table.take_latest(level, parts, answer, asked_s, now_s)
        if stale:
            self._look_again(stale, _AT_ONCE_S)
        return doubtful

    def confirmed(
        self,
        level: IsolationLevel,
        parts: list[TopicPart],
        answer: bytes,
        asked_s: float,
        metadata: MetadataResponse,
    ) -> None:
        """Whether the offsets in doubt are of the topics that are known."""
        now_s = time.monotonic()
        _, found_topics = metadata.read()
        other = [found for found in found_topics if self._table.is_other(found)]
        for found in other:
            self._table.place(found, now_s, now_s)
        self._look_again({found.name for found in other}, _AT_ONCE_S)
        same = {part.topic for part in parts} - {found.name for found in other}
        self._table.take_latest(level, parts, answer, asked_s, now_s, same)

    def failed(self, parts: list[TopicPart], reason: str, asked_s: float) -> None:
        """A leader gave no answer."""
        for part in parts:
            self._table.fail(part.partitions.values(), reason, asked_s)
        self.late(parts)

    def late(self, parts: Iterable[TopicPart]) -> None:
        """A leader takes its time: another may lead by now."""
        self._look_again({part.topic for part in parts}, _SOON_S)

    def _make_plan(self, state: QueryState) -> Plan:
        plan = self._plans[state.query_id] = self._table.plan(state)
        for topic in plan.topics:
            if topic not in self._due_s:
                self._due_s[topic] = 0.0
                self._learn_now.set()
        for leader, _, part in plan.parts:
            if not part.earliest_asked:
                self._ask_earliest(leader, part)
        return plan

    def _ask_leaders(self, plan: Plan, hold: Hold) -> None:
        leaders = set()
        for leader, level, part in plan.parts:
            self._channel(leader).want(level, part, self._table.part)
            leaders.add(leader)
        for leader in leaders:
            self._channels[leader].wait(hold)

    def _hear(self) -> None:
        self.unreachable = None
        self._is_away = False

    # Metadata

    async def _learn_due(self) -> None:
        """Read the metadata that is due, then sleep until more is."""
        self._learn_now.clear()
        now_s = time.monotonic()
        due = sorted(topic for topic, due_s in self._due_s.items() if due_s <= now_s)
        if self._brokers_due_s <= now_s or (due and not self._is_away):
            for start in range(0, max(len(due), 1), _METADATA_TOPICS):
                if not await self._learn(due[start : start + _METADATA_TOPICS]):
                    self._be_away()
                    break
        next_s = self._brokers_due_s
        if not self._is_away:
            next_s = min(next_s, *self._due_s.values()) if self._due_s else next_s
        await until_set(self._learn_now, next_s - time.monotonic())

    async def _learn(self, topics: list[str]) -> bool:
        asked_s = time.monotonic()
        found_topics = await self.pool.refresh(topics)
        if found_topics is None:
            return False
        self._hear()
        interval_s = self._settings.metadata_interval_s
        self._table.place_brokers(self.pool.brokers)
        await self._close_moved()
        self._brokers_due_s = time.monotonic() + interval_s
        since_breath = 0
        for topic in found_topics:
            if topic.name not in self._due_s:
                continue  # forgotten meanwhile
            now_s = time.monotonic()
            well = self._table.place(topic, asked_s, now_s)
            self._learned_s[topic.name] = now_s
            self._due_s[topic.name] = now_s + (interval_s if well else min(_SOON_S, interval_s))
            since_breath += 1 + len(topic.leaders)
            if since_breath >= _BREATHE_PARTITIONS:
                since_breath = 0
                await asyncio.sleep(0)
        await self._place_waiting()
        return True

    def _be_away(self) -> None:
        """No broker answers: nobody waits for this cluster until one does."""
        self._is_away = True
        self._brokers_due_s = time.monotonic() + _SOON_S
        self.unreachable = self.unreachable or "no broker answers"
        for plan in self._plans.values():
            self._fail_unplaced(plan)
        self._let_go()
        if self._explaining is None:
            self._explaining = asyncio.create_task(self._explain_absence())

    async def _explain_absence(self) -> None:
        """Say why no broker answers; it is tried in vain once more for that, now and then."""
        try:
            reason = await self.pool.explain_unreachable()
            if self._is_away:
                self.unreachable = reason
            await asyncio.sleep(_EXPLAIN_AGAIN_S if self._is_away else 0)
        finally:
            self._explaining = None

    def _fail_unplaced(self, plan: Plan) -> None:
        for partitions in plan.without_position.values():
            self._table.fail(partitions, "no broker answers", plan.asked_s)

    async def _place_waiting(self) -> None:
        """Ask for what waited for topics that are known now."""
        known = self.offsets.topics
        for waiting in list(self._unplaced):
            if waiting in self._unplaced and known.keys() >= waiting.plan.without_position.keys():
                self._unplaced.remove(waiting)
                self.ask(waiting.plan.state, waiting.hold)
                waiting.hold.release()
                await asyncio.sleep(0)

    def _wait_no_more(self, waiting: _Unplaced) -> None:
        if waiting in self._unplaced:
            self._unplaced.remove(waiting)
            waiting.hold.release()

    def _let_go(self) -> None:
        for waiting in list(self._unplaced):
            self._wait_no_more(waiting)

    def _look_again(self, topics: Iterable[str], spacing_s: float) -> None:
        now_s = time.monotonic()
        for topic in topics:
            if topic in self._due_s:
                soon_s = max(now_s, self._learned_s.get(topic, 0.0) + spacing_s)
                if soon_s < self._due_s[topic]:
                    self._due_s[topic] = soon_s
                    self._learn_now.set()

    # Connections

    def _channel(self, leader: int) -> LeaderChannel:
        channel = self._channels.get(leader)
        if channel is None:
            connection = self.pool.dedicated(self._table.brokers[leader])
            timeout_s = self.pool.timeout_s
            channel = LeaderChannel(leader, connection, LATEST, timeout_s, self, self._turn)
            self._channels[leader] = channel
        return channel

    async def _close_moved(self) -> None:
        """Close the channels to addresses where their broker is no longer."""
        brokers = self._table.brokers
        moved = [
            node
            for node, channel in self._channels.items()
            if brokers.get(node) != channel.connection.address
        ]
        await self._close_all(moved)

    async def _close_all(self, nodes: list[int]) -> None:
        closing: list[Awaitable[None]] = []
        for node in nodes:
            channel = self._channels.pop(node)
            closing += [channel.aclose(), channel.connection.aclose()]
            earliest = self._earliest_channels.pop(node, None)
            if earliest is not None:
                closing.append(earliest.aclose())
        await asyncio.gather(*closing)

    # Earliest offsets: they move slowly

    async def _refresh_earliest(self) -> None:
        await asyncio.sleep(self._settings.earliest_interval_s)
        for plan in list(self._plans.values()):
            if plan.epoch == self._table.epoch:
                for leader, _, part in plan.parts:
                    self._ask_earliest(leader, part)
            await asyncio.sleep(0)

    def _ask_earliest(self, leader: int, part: TopicPart) -> None:
        channel = self._earliest_channels.get(leader)
        if channel is None:
            connection = self.pool.connection(leader)
            if connection is None:
                return
            timeout_s = self.pool.timeout_s
            taker = _EarliestTaker(self._table)
            channel = LeaderChannel(leader, connection, EARLIEST, timeout_s, taker, self._turn)
            self._earliest_channels[leader] = channel
        part.earliest_asked = True
        channel.want("read_uncommitted", part, self._table.part)

    async def _forget_unasked(self) -> None:
        await asyncio.sleep(_TIDY_S)
        now_s = time.monotonic()
        since_s = now_s - _FORGET_S - 2 * self._settings.refresh_interval_s
        self._plans = {i: plan for i, plan in self._plans.items() if plan.asked_s >= since_s}
        self._table.keep_only(self._plans.values(), now_s)
        topics: set[str] = set().union(*(plan.topics for plan in self._plans.values()))
        for topic in self._due_s.keys() - topics:
            self._due_s.pop(topic)
            self._learned_s.pop(topic, None)
        leaders = {leader for plan in self._plans.values() for leader, _, _ in plan.parts}
        await self._close_all([node for node in self._channels if node not in leaders])


class _EarliestTaker:
    def __init__(self, table: OffsetTable) -> None:
        self._table = table

    def answered(
        self, level: IsolationLevel, parts: list[TopicPart], answer: bytes, asked_s: float
    ) -> set[str]:
        self._table.take_earliest(parts, answer, asked_s)
        return set()

    def confirmed(
        self,
        level: IsolationLevel,
        parts: list[TopicPart],
        answer: bytes,
        asked_s: float,
        metadata: MetadataResponse,
    ) -> None:
        """Nothing is in doubt."""

    def failed(self, parts: list[TopicPart], reason: str, asked_s: float) -> None:
        """The next refresh asks again."""

    def late(self, parts: Iterable[TopicPart]) -> None:
        """Nobody waits."""


@dataclass(eq=False)
class _Unplaced:
    """A query that waits for the metadata of new topics."""

    plan: Plan
    hold: Hold

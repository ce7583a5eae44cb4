"""One Kafka cluster that queries read from: its topics, their leaders, and the offsets.

A broker that fails affects only its own partitions.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Final

from msgspec.structs import replace

from sparklag_kafka.brokers.leader_channel import LeaderChannel, OffsetsReceiver, WaitGroup
from sparklag_kafka.brokers.pool import BrokerConnection, BrokerPool
from sparklag_kafka.protocol.list_offsets import EARLIEST, LATEST, OffsetSpec, TopicPart
from sparklag_kafka.protocol.metadata import Address, MetadataResponse
from sparklag_schemas import ClusterAccess, IsolationLevel, Settings
from sparklag_schemas.runtime.queue import by_count
from sparklag_schemas.runtime.tasks import repeat, run_together, until_set, with_pauses
from sparklag_service.enrichment.cluster_offsets import ClusterOffsets
from sparklag_service.enrichment.offset_table import OffsetTable, ReadPlan
from sparklag_service.enrichment.topic_patterns import TopicPatterns
from sparklag_service.tracking.query_state import QueryState, TrackedSource

_log = logging.getLogger(__name__)

_METADATA_TOPICS: Final = 100
"""Topics in one metadata request."""
_PAUSE_PARTITIONS: Final = 1_000
"""Other tasks run after this many partitions of a metadata response."""
_RETRY_S: Final = 2.0
"""How soon metadata is read again if something is missing, leaderless, or does not respond."""
_STALE_RETRY_S: Final = 0.5
"""Minimum time between two reads of a topic's metadata that a leader reports as stale."""
_PLANS_PER_PAUSE: Final = 100
"""Other tasks run after this many plans or topics."""
_NEW_TOPIC_TIMEOUT_S: Final = 2.0
_FORGET_S: Final = 300.0
_TIDY_S: Final = 60.0
_CLOSE_TIMEOUT_S: Final = 5.0
_EXPLAIN_AGAIN_S: Final = 30.0
_HIGH_WATERMARKS_S: Final = 5.0
"""Time between two reads of the high watermarks of topics that are read up to the last stable
offset."""


@dataclass
class WatchedQuery:
    """A query that reads from the cluster: its plan, and when its record times are due."""

    plan: ReadPlan
    progress: object = None
    """Changes whenever positions may have moved. None: not measured yet."""
    unchanged_since_s: float = -inf
    """-inf: its positions may be older than this instance."""
    next_s: float = 0.0
    """When to check its partitions."""
    may_need_lookup: bool = True


class WatchedCluster(OffsetsReceiver):
    """Updates `offsets` on request, while `run` runs. Create it on the loop it runs on."""

    def __init__(self, alias: str, access: ClusterAccess, settings: Settings) -> None:
        self.alias = alias
        self.unreachable: str | None = "no broker was contacted yet"
        """Why no broker responds. None: a broker does."""
        self.pool = BrokerPool(access, settings.measure_timeout_s)
        self._settings = settings
        self.table = OffsetTable(alias)
        self.offsets: ClusterOffsets = self.table.topics
        self._earliest_receiver = _EarliestReceiver(self.table)
        self.queries: dict[str, WatchedQuery] = {}
        """The queries measured in this cluster, by id."""
        self._patterns = TopicPatterns(self.pool, self._is_absent)
        self._match_now = asyncio.Event()
        self._released: list[ReadPlan] = []
        self._channels: dict[tuple[int, OffsetSpec], LeaderChannel] = {}
        self._reading = asyncio.Lock()
        self._waiting: dict[WaitGroup, ReadPlan] = {}
        """Queries that wait for the metadata of new topics."""
        self._unresponsive = asyncio.Event()
        """Set while no broker responds."""
        self._brokers_due_s = 0.0
        """When to read the metadata of the brokers."""
        self._fetch_now = asyncio.Event()

    @property
    def unreadable(self) -> list[str]:
        """Why topics that may exist cannot be described, sorted by topic."""
        descriptions = {name: topic.description for name, topic in self.table.topics.items()}
        reasons = {
            name: description.missing
            for name, description in descriptions.items()
            if description.missing and not description.absent
        }
        return [reason for _, reason in sorted(reasons.items())]

    def matched(self, source: TrackedSource) -> TrackedSource:
        """`source` with the existing topics that match its pattern, as soon as they are listed."""
        matches = self._patterns.matches.get(source.topic_pattern or "")
        if matches is None or source.topic_pattern is None:
            return source
        matched = source.matched
        if matches.listed:
            matched = tuple(sorted(n for n in matches.topics if not self._is_absent(n)))
        if (matched, matches.problem) == (source.matched, source.unlisted):
            return source
        return replace(source, matched=matched, unlisted=matches.problem)

    def leader(self, topic: str, partition: int) -> Address | None:
        """The address of the partition's leader. None: it has no leader."""
        return self.table.leader(topic, partition)

    async def run(self) -> None:
        """Read metadata, earliest offsets and high watermarks until cancelled."""
        steps = (
            *(self._fetch_due, self._match_patterns, self._refresh_earliest),
            *(self._refresh_high_watermarks, self._explain_absence, self._forget_idle),
        )
        await run_together(
            *(repeat(step, f"Kafka cluster {self.alias}", _RETRY_S) for step in steps)
        )

    async def aclose(self) -> None:
        """Close the connections; bounded in time."""
        closing = [self._close_channels(list(self._channels)), self.pool.aclose()]
        await asyncio.wait([*map(asyncio.ensure_future, closing)], timeout=_CLOSE_TIMEOUT_S)
        self._release_waiting()

    def request(self, state: QueryState, wait_group: WaitGroup) -> None:
        """Measure what `state` needs in this cluster. Adds to `wait_group` for each leader to wait
        for."""
        query = self.queries.get(state.query_id)
        plan = None if query is None else query.plan
        if plan is None or plan.state is not state or plan.epoch != self.table.epoch:
            plan = self._make_plan(state, query)
        plan.requested_s = time.monotonic()
        for name, unknown in plan.unknown.items():
            self.table.topic(name).unknown.update(unknown)
        channels = set()
        for leader, level, part in plan.parts:
            channel = self._channels.get((leader, LATEST))
            if channel is None:
                # Latest offsets have their own connection: other requests do not delay them.
                connection = self.pool.dedicated(self.table.brokers[leader])
                channel = self._open_channel(leader, LATEST, connection, self)
            channel.request(level, part)
            channels.add(channel)
        for channel in channels:
            channel.join(wait_group)
        if plan.undescribed and self._unresponsive.is_set():
            self._fail_undescribed(plan)
        elif plan.undescribed:
            wait_group.add()
            self._waiting[wait_group] = plan
            asyncio.get_running_loop().call_later(
                min(_NEW_TOPIC_TIMEOUT_S, self._settings.measure_timeout_s),
                self._release,
                wait_group,
            )

    def part(self, topic: str, numbers: tuple[int, ...]) -> TopicPart:
        return self.table.part(topic, numbers)

    def received(self, level: IsolationLevel, response: bytes, requested_s: float) -> set[str]:
        self._mark_reachable()
        now_s = time.monotonic()
        stale, doubtful = self.table.take_latest(level, response, requested_s, now_s)
        self._expedite(stale, _STALE_RETRY_S)
        return doubtful

    def confirmed(
        self,
        level: IsolationLevel,
        parts: list[TopicPart],
        response: bytes,
        requested_s: float,
        metadata: MetadataResponse,
    ) -> None:
        """Store the offsets of doubtful topics that were not recreated."""
        now_s = time.monotonic()
        _, topics = metadata.read()
        recreated = [topic for topic in topics if self.table.is_recreated(topic)]
        for topic in recreated:
            self.table.update_topic(topic, now_s, now_s)
        names = {topic.name for topic in recreated}
        self._expedite(names, _STALE_RETRY_S)
        same = {part.topic for part in parts} - names
        self.table.take_latest(level, response, requested_s, now_s, same)

    def failed(self, parts: list[TopicPart], reason: str, requested_s: float) -> None:
        for part in parts:
            self.table.fail(part.topic, part.numbers, reason, requested_s)
        self.late(parts)

    def late(self, parts: Iterable[TopicPart]) -> None:
        """Read metadata again: another broker may lead these partitions."""
        self._expedite({part.topic for part in parts}, _RETRY_S)

    def release(self, query_id: str) -> None:
        """Forget a query. Its topics stay as long as those of an idle query: it may come back."""
        query = self.queries.pop(query_id, None)
        if query is not None:
            self._released.append(query.plan)

    def _make_plan(self, state: QueryState, query: WatchedQuery | None) -> ReadPlan:
        plan = self.table.plan(state)
        if query is None:
            self.queries[state.query_id] = WatchedQuery(plan)
        else:
            query.plan = plan
        if not plan.patterns <= self._patterns.matches.keys():
            self._match_now.set()
        if plan.undescribed:
            self._fetch_now.set()
        for leader, _, part in plan.parts:
            if not part.earliest_requested:
                self._request_earliest(leader, part)
        return plan

    # Metadata

    async def _fetch_due(self) -> None:
        """Read the metadata that is due, then sleep until the next is due."""
        self._fetch_now.clear()
        now_s = time.monotonic()
        due = sorted(name for name, topic in self.table.topics.items() if topic.due_s <= now_s)
        if self._brokers_due_s <= now_s or (due and not self._unresponsive.is_set()):
            for topics in list(by_count(due, _METADATA_TOPICS)) or [[]]:
                if not await self._fetch(topics):
                    self._mark_unresponsive()
                    break
        next_s = [self._brokers_due_s]
        if not self._unresponsive.is_set():
            next_s += [topic.due_s for topic in self.table.topics.values()]
        await until_set(self._fetch_now, min(next_s) - time.monotonic())

    async def _fetch(self, topics: list[str]) -> bool:
        requested_s = time.monotonic()
        is_denied = any(self.table.topic(name).denials for name in topics)
        described = await self.pool.refresh(topics, from_another=is_denied)
        if described is None:
            return False
        self._mark_reachable()
        interval_s = self._settings.metadata_interval_s
        for name in topics:
            # A response may lack a topic.
            self.table.topic(name).due_s = time.monotonic() + min(_RETRY_S, interval_s)
        brokers = self.pool.brokers
        self.table.update_brokers(brokers, self.pool.last_responder)
        channels = self._channels.items()
        await self._close_channels(
            [key for key, channel in channels if brokers.get(key[0]) != channel.connection.address]
        )
        self._brokers_due_s = time.monotonic() + interval_s
        since_pause = 0
        for topic in described:
            if topic.name not in self.table.topics:
                continue  # forgotten meanwhile
            now_s = time.monotonic()
            is_complete = self.table.update_topic(topic, requested_s, now_s)
            next_s = interval_s if is_complete else min(_RETRY_S, interval_s)
            self.table.topic(topic.name).due_s = now_s + next_s
            since_pause += 1 + len(topic.leaders)
            if since_pause >= _PAUSE_PARTITIONS:
                since_pause = 0
                await asyncio.sleep(0)
        for wait_group, plan in list(self._waiting.items()):
            missing = (self.table.topic(name).described_s is None for name in plan.undescribed)
            if wait_group in self._waiting and not any(missing):
                del self._waiting[wait_group]
                self.request(plan.state, wait_group)
                wait_group.done()
                await asyncio.sleep(0)
        return True

    async def _match_patterns(self) -> None:
        """Match the patterns of the queries, then sleep until there is another."""
        self._match_now.clear()
        patterns = (query.plan.patterns for query in self.queries.values())
        await self._patterns.update(set().union(*patterns))
        await until_set(self._match_now, self._settings.metadata_interval_s)

    def _is_absent(self, name: str) -> bool:
        topic = self.table.topics.get(name)
        return topic is not None and topic.description.absent

    def _expedite(self, topics: Iterable[str], spacing_s: float) -> None:
        """Read metadata of `topics` soon, at least `spacing_s` after the last time."""
        now_s = time.monotonic()
        for name in topics:
            topic = self.table.topics.get(name)
            if topic is None:
                continue  # forgotten meanwhile
            last_s = topic.denials[-1][0] if topic.denials else topic.described_s or 0.0
            soon_s = max(now_s, last_s + spacing_s)
            if soon_s < topic.due_s:
                topic.due_s = soon_s
                self._fetch_now.set()

    def _mark_reachable(self) -> None:
        self.unreachable = None
        self._unresponsive.clear()

    def _mark_unresponsive(self) -> None:
        """No broker responds: no query waits for this cluster until one does."""
        self._unresponsive.set()
        self._brokers_due_s = time.monotonic() + _RETRY_S
        self.unreachable = self.unreachable or "no broker answers"
        for query in self.queries.values():
            self._fail_undescribed(query.plan)
        self._release_waiting()

    async def _explain_absence(self) -> None:
        """Find out why no broker responds, by a new connection at intervals."""
        await self._unresponsive.wait()
        reason = await self.pool.explain_unreachable()
        if self._unresponsive.is_set():
            self.unreachable = reason
            await asyncio.sleep(_EXPLAIN_AGAIN_S)

    def _fail_undescribed(self, plan: ReadPlan) -> None:
        for topic, numbers in plan.undescribed.items():
            self.table.fail(topic, numbers, "no broker answers", plan.requested_s)

    def _release(self, wait_group: WaitGroup) -> None:
        if self._waiting.pop(wait_group, None) is not None:
            wait_group.done()

    def _release_waiting(self) -> None:
        for wait_group in list(self._waiting):
            self._release(wait_group)

    # Channels

    def _open_channel(
        self, leader: int, spec: OffsetSpec, connection: BrokerConnection, receiver: OffsetsReceiver
    ) -> LeaderChannel:
        channel = LeaderChannel(leader, connection, spec, receiver, self._reading)
        self._channels[leader, spec] = channel
        return channel

    async def _close_channels(self, keys: Iterable[tuple[int, OffsetSpec]]) -> None:
        closing: list[Awaitable[None]] = []
        for key in keys:
            channel = self._channels.pop(key)
            closing.append(channel.aclose())
            if key[1] == LATEST:
                closing.append(channel.connection.aclose())
        await asyncio.gather(*closing)

    # Earliest offsets: they change slowly.

    async def _refresh_earliest(self) -> None:
        await asyncio.sleep(self._settings.earliest_interval_s)
        for plan in [query.plan for query in self.queries.values()]:
            if plan.epoch == self.table.epoch:
                for leader, _, part in plan.parts:
                    self._request_earliest(leader, part)
            await asyncio.sleep(0)

    def _request_earliest(self, leader: int, part: TopicPart) -> None:
        channel = self._channels.get((leader, EARLIEST))
        if channel is None:
            connection = self.pool.connection(leader)
            if connection is None:
                return  # the broker left; new metadata is on its way
            channel = self._open_channel(leader, EARLIEST, connection, self._earliest_receiver)
        part.earliest_requested = True
        channel.request("read_uncommitted", part)

    async def _refresh_high_watermarks(self) -> None:
        """Find the transactions for which `read_committed` sources wait."""
        await asyncio.sleep(_HIGH_WATERMARKS_S)
        for plan in [query.plan for query in self.queries.values()]:
            if plan.epoch == self.table.epoch:
                for leader, level, part in plan.parts:
                    channel = self._channels.get((leader, LATEST))
                    if level == "read_committed" and channel is not None:
                        channel.request("read_uncommitted", part)
            await asyncio.sleep(0)

    async def _forget_idle(self) -> None:
        """Forget queries that were not requested for long, and their topics and leaders."""
        await asyncio.sleep(_TIDY_S)
        now_s = time.monotonic()
        interval_s = max(self._settings.refresh_interval_s, self._settings.heartbeat_s)
        since_s = now_s - _FORGET_S - 2 * interval_s
        queries = self.queries.items()
        self.queries = {i: query for i, query in queries if query.plan.requested_s >= since_s}
        self._released = [plan for plan in self._released if plan.requested_s >= since_s]
        steps = self.table.retain(self._plans_to_keep())
        async for _ in with_pauses(steps, _PLANS_PER_PAUSE):
            pass
        leaders = {leader for plan in self._plans_to_keep() for leader, _, _ in plan.parts}
        await self._close_channels([key for key in self._channels if key[0] not in leaders])

    def _plans_to_keep(self) -> list[ReadPlan]:
        return [*(query.plan for query in self.queries.values()), *self._released]


class _EarliestReceiver(OffsetsReceiver):
    """Receives earliest offsets. A failed read is retried at the next refresh."""

    def __init__(self, table: OffsetTable) -> None:
        self.table = table

    def part(self, topic: str, numbers: tuple[int, ...]) -> TopicPart:
        return self.table.part(topic, numbers)

    def received(self, level: IsolationLevel, response: bytes, requested_s: float) -> set[str]:
        self.table.take_earliest(response, requested_s)
        return set()

"""Finds out when the first unprocessed records of queries came, as far as that is worth its cost.

A position that stands for a moment is sampled: its record's timestamp is read from the log, once.
What lags since before anyone looked at the log is looked up by time, once after a start.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from itertools import chain
from typing import Final

from sparklag_schemas import TimeLagSettings
from sparklag_schemas.runtime.tasks import keep_on, run_together, with_pauses
from sparklag_service.enrichment.cluster_offsets import RecordTime
from sparklag_service.enrichment.record_times.asked import SOON_S, Asked, Position
from sparklag_service.enrichment.record_times.batch_sizes import BatchSizes
from sparklag_service.enrichment.record_times.byte_budget import ByteBudget
from sparklag_service.enrichment.record_times.counts import RecordTimeCounts
from sparklag_service.enrichment.record_times.earlier_ends import EarlierEnds
from sparklag_service.enrichment.record_times.lagging import (
    Lagging,
    came_unseen,
    lagging_partitions,
)
from sparklag_service.enrichment.record_times.leader_reader import LeaderReader
from sparklag_service.enrichment.record_times.leaders import Cluster, Leaders
from sparklag_service.enrichment.record_times.refusals import Refusals
from sparklag_service.enrichment.record_times.search import Search
from sparklag_service.tracking.query_state import QueryState

_log = logging.getLogger(__name__)

_STOOD_S: Final = 1.0
"""The record's time of a position that moves on at once is of no use to anybody."""
_FIRST_KAFKA_MS: Final = 1_293_840_000_000
"""2011. What is earlier is no time at which a record came: zero, or seconds for milliseconds."""
_BREATHE_PARTITIONS: Final = 250
"""That are looked at before others have the loop."""
_TIDY_S: Final = 60.0
_AGAIN_S: Final = 2.0
_CANCEL_AGAIN_S: Final = 1.0


@dataclass
class _Turn:
    """When a query was and will be looked at."""

    key: object
    """What changes where its position may have moved."""
    since_s: float
    next_s: float = 0.0
    unlooked: bool = True
    """It may have partitions that are still to be looked up by time."""

    def has_stood(self, now_s: float) -> bool:
        return now_s - self.since_s >= _STOOD_S


class RecordTimes:
    """Of one cluster. Fills `record_times` of its offsets, and earlier rows into its `times`."""

    def __init__(self, alias: str, cluster: Cluster, settings: TimeLagSettings) -> None:
        self.counts = RecordTimeCounts()
        self._alias = alias
        self._said = cluster.offsets
        self._settings = settings
        self._budget = ByteBudget(time.monotonic())
        self._refusals = Refusals(alias)
        self._sizes = BatchSizes()
        self._told: set[str] = set()
        """Topics with a record that has no time that is of use."""
        self._asked = Asked()
        self._leaders = Leaders(
            cluster, lambda link: LeaderReader(link, self._budget, self.counts, self._take)
        )
        self._earlier_ends = EarlierEnds(self._said, self._leaders, self.counts)
        self._turns: dict[str, _Turn] = {}
        self._due: dict[str, QueryState] = {}
        self._any_due = asyncio.Event()

    def offer(self, state: QueryState) -> None:
        """A query was measured: look whether there is something to find out. It returns at once."""
        if all(source.cluster != self._alias for source in state.sources):
            return
        now_s = time.monotonic()
        key = (state.batch_id, state.processed_at_ms)
        turn = self._turns.get(state.query_id)
        if turn is None:
            # Where it stands since before a start it has stood long enough.
            turn = self._turns[state.query_id] = _Turn(key, since_s=now_s - _STOOD_S)
        elif turn.key != key:
            turn.key, turn.since_s = key, now_s
        samples = self._settings.sample and turn.has_stood(now_s)
        if now_s < turn.next_s or not (turn.unlooked or samples):
            return
        turn.next_s = now_s + self._settings.sample_interval_s
        self._due[state.query_id] = state
        self._any_due.set()

    async def run(self) -> None:
        """Find out until cancelled."""
        what = f"record times of Kafka cluster {self._alias}"
        await run_together(
            keep_on(self._take_turns, what, _AGAIN_S),
            keep_on(self._earlier_ends.look_up_wanted, what, _AGAIN_S),
            keep_on(self._tidy, what, _AGAIN_S),
            patience_s=_CANCEL_AGAIN_S,
        )

    async def aclose(self) -> None:
        """Close the connections; bounded in time."""
        await self._leaders.aclose()

    async def _take_turns(self) -> None:
        await self._any_due.wait()
        self._any_due.clear()
        due, self._due = self._due, {}
        for state in due.values():
            turn = self._turns.get(state.query_id)
            if turn is not None:
                await self._take_turn(state, turn)
            # Of hundreds of queries, each a turn.
            await asyncio.sleep(0)

    async def _take_turn(self, state: QueryState, turn: _Turn) -> None:
        samples = self._settings.sample and turn.has_stood(time.monotonic())
        turn.unlooked = False
        unseen: list[Lagging] = []
        others: list[Lagging] = []
        every = chain.from_iterable(
            lagging_partitions(source, self._said)
            for source in state.sources
            if source.cluster == self._alias
        )
        async for lagging in with_pauses(every, _BREATHE_PARTITIONS):
            if lagging is None:
                continue
            is_worth_it = samples and self._is_worth_it(lagging)
            is_looked_up = self._earlier_ends.has(lagging)
            if is_looked_up and not is_worth_it:
                continue
            is_unseen = came_unseen(lagging, self._said)
            if not is_unseen:
                self._earlier_ends.leave(lagging)
            elif not is_looked_up:
                turn.unlooked = True
                self._earlier_ends.want(lagging)
            if is_worth_it:
                (unseen if is_unseen else others).append(lagging)
        # Those first of which least is known.
        async for lagging in with_pauses(chain(unseen, others), _BREATHE_PARTITIONS):
            self._sample(lagging)

    def _is_worth_it(self, lagging: Lagging) -> bool:
        partition, now_s = lagging.partition, time.monotonic()
        known = self._said.record_times.get(partition)
        return (
            (known is None or known.offset != lagging.position)
            and not self._refusals.is_left_alone(partition.topic, now_s)
            and self._asked.is_due(partition, lagging.asked, now_s)
        )

    def _sample(self, lagging: Lagging) -> None:
        partition = lagging.partition
        reader = self._leaders.of(partition)
        if reader is None:
            return
        self._asked.begin(partition, lagging.asked, time.monotonic())
        size = self._sizes.usual(partition.topic)
        reader.want(Search(partition, lagging.level, lagging.position, size, lagging.topic_id))

    def _take(self, search: Search) -> None:
        """A search has come to its end."""
        partition, now_s, counts = search.partition, time.monotonic(), self.counts
        asked: Position = (search.topic_id, search.level, search.position)
        if search.batch_bytes is not None:
            self._sizes.learn(partition.topic, search.batch_bytes)
        if search.ending not in ("found", "replaced"):
            _log.debug("%s at %s is not sampled: %s", partition, search.position, search.reason)
        if search.ending == "found":
            self._refusals.end(partition.topic)
            self._keep(search, asked, now_s)
        elif search.ending == "unusable":
            self._count_unusable(search, search.reason)
        elif search.ending == "nothing":
            counts.nothing_there += 1
            self._asked.again(partition, asked, now_s + SOON_S)
        elif search.ending == "out of range":
            counts.out_of_range += 1
            self._asked.again(partition, asked, now_s + SOON_S)
        else:
            if search.ending == "failed":
                counts.failed += 1
            elif search.ending == "forbidden" and self._refusals.begin(partition.topic, now_s):
                counts.forbidden += 1
            self._asked.again(partition, asked, now_s)

    def _count_unusable(self, search: Search, why: str) -> None:
        """Told of once for each topic."""
        self.counts.unusable += 1
        topic, number = search.partition
        if topic not in self._told:
            self._told.add(topic)
            _log.info(
                "Kafka cluster %s: no time for the record at %d of %s partition %d: %s",
                *(self._alias, search.position, topic, number, why),
            )

    def _keep(self, search: Search, asked: Position, now_s: float) -> None:
        if search.timestamp_ms < _FIRST_KAFKA_MS:
            self._count_unusable(search, f"its time is {search.timestamp_ms}")
            return
        self.counts.sampled += 1
        topic = self._said.topics.get(search.partition.topic)
        # Not of a topic that had this name before.
        if topic is not None and topic.topic_id == search.topic_id:
            found = RecordTime(search.position, search.timestamp_ms)
            self._said.record_times[search.partition] = found
            self._asked.found(search.partition, asked, now_s)

    async def _tidy(self) -> None:
        await asyncio.sleep(_TIDY_S)
        now_s = time.monotonic()
        self._asked.tidy(now_s)
        self._sizes.keep_only({*self._said.topics})
        self._told &= self._said.topics.keys()
        self._earlier_ends.tidy()
        await self._leaders.close_idle()
        over_s = now_s - max(_TIDY_S, 3 * self._settings.sample_interval_s)
        self._turns = {query: turn for query, turn in self._turns.items() if turn.next_s > over_s}

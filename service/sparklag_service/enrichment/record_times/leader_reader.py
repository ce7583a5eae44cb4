"""Reads the times of records from one leader: in rounds, one at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from aiokafka.structs import TopicPartition

from sparklag_kafka.brokers.connection import BrokerConnection
from sparklag_kafka.errors import KAFKA_FAILURES, error_text
from sparklag_kafka.protocol.fetch import FetchAnswer, FetchRequest, Place
from sparklag_schemas import IsolationLevel
from sparklag_schemas.runtime.tasks import end, with_pauses
from sparklag_service.enrichment.record_times.byte_budget import ByteBudget
from sparklag_service.enrichment.record_times.counts import RecordTimeCounts
from sparklag_service.enrichment.record_times.search import MOST_BYTES, Search

_log = logging.getLogger(__name__)

_MOST_PARTITIONS: Final = 500
"""In one request."""
_CANCEL_AGAIN_S: Final = 1.0
_BREATHE_PARTITIONS: Final = 25
"""Reading so many holds the loop for some milliseconds, where they are in the midst of batches."""


class LeaderReader:
    """Searches that are wanted are made until each has an ending, which `taker` is given.

    A leader that does not answer ends them all; they may be wanted again.
    """

    def __init__(
        self,
        connection: BrokerConnection,
        budget: ByteBudget,
        counts: RecordTimeCounts,
        taker: Callable[[Search], None],
    ) -> None:
        self.connection = connection
        self._budget = budget
        self._counts = counts
        self._taker = taker
        self._wanted: dict[TopicPartition, Search] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether there are searches without an ending."""
        return self._task is not None

    def want(self, search: Search) -> None:
        """In one of the next rounds, instead of what was wanted of the partition before: what
        cannot be read in time does not pile up."""
        before = self._wanted.pop(search.partition, None)
        if before is not None:
            before.give_way()
            self._taker(before)
        self._wanted[search.partition] = search
        if self._task is None:
            self._task = asyncio.create_task(self._run_rounds())

    async def aclose(self) -> None:
        """End the round under way, and close the connection."""
        if self._task is not None:
            await end(self._task, patience_s=_CANCEL_AGAIN_S)
        await self.connection.aclose()

    async def _run_rounds(self) -> None:
        try:
            while self._wanted:
                wait_s = self._budget.wait_s(time.monotonic())
                if wait_s:
                    await asyncio.sleep(wait_s)
                    continue
                try:
                    await self._run_round()
                except KAFKA_FAILURES as error:
                    self._fail(error_text(error))
                except Exception:  # those that are wanted next have nothing to do with it
                    _log.exception("reading record times from %s:%s", *self.connection.address)
                    self._fail("unforeseen")
        finally:
            self._task = None

    async def _run_round(self) -> None:
        level, searches = self._next_ones()
        places: dict[str, list[Place]] = {}
        for partition, search in searches.items():
            places.setdefault(partition.topic, []).append(search.place)
        self._counts.requests += 1
        try:
            answer: FetchAnswer = await self.connection.send(
                FetchRequest(level, places, MOST_BYTES)
            )
            size = len(answer.data)
            self._counts.bytes_read += size
            self._budget.spend(size, time.monotonic())
            await self._take(searches, answer)
        finally:
            self._give_up(searches, "the leader gave no answer, or holds it back: a quota")

    async def _take(self, searches: dict[TopicPartition, Search], answer: FetchAnswer) -> None:
        """Go on with each of `searches` that is answered, and take it out."""
        async for fetched in with_pauses(answer.read(), _BREATHE_PARTITIONS):
            # Equal to the TopicPartition, and made in less time.
            search = searches.pop((fetched.topic, fetched.partition), None)
            if search is None:
                continue
            search.take(fetched)
            if search.ending is None and search.partition in self._wanted:
                search.give_way()
            if search.ending is not None:
                self._taker(search)
            else:
                self._wanted[search.partition] = search

    def _next_ones(self) -> tuple[IsolationLevel, dict[TopicPartition, Search]]:
        """Those of one level that have their answer in one that is not too large."""
        level = next(iter(self._wanted.values())).level
        taken: dict[TopicPartition, Search] = {}
        room = MOST_BYTES
        for partition, search in self._wanted.items():
            size = search.place[2]
            if search.level != level or (taken and size > room):
                continue
            taken[partition] = search
            room -= size
            if room <= 0 or len(taken) == _MOST_PARTITIONS:
                break
        for partition in taken:
            del self._wanted[partition]
        return level, taken

    def _fail(self, reason: str) -> None:
        wanted, self._wanted = self._wanted, {}
        self._give_up(wanted, reason)

    def _give_up(self, searches: dict[TopicPartition, Search], reason: str) -> None:
        for search in searches.values():
            search.fail(reason)
            self._taker(search)
        searches.clear()

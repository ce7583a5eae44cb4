"""A world of alarms, and of a query that is well, whose owners change all the time."""

from __future__ import annotations

import asyncio
from typing import Final

from tests.simulation.invariants import Violation
from tests.simulation.queries import SimulatedQuery
from tests.simulation.world import World

_TICK_S: Final = 10.0
_WARM_UP_S: Final = 1_500.0
_FAILING_S: Final = 900.0
_FAILING: Final = ("hung", "dead")
"""Queries whose last batch never ends."""
_EXPECTED: Final = {
    "well": "OK",
    "slow": "WARN",
    "slow by the minute": "WARN",
    "stuck": "STALL",
    "hung": "STALL",
    "dead": "STOP",
}


class HandOvers(World):
    """Each trouble is a restart, a rolling restart or a rebalance."""

    def begin(self) -> None:
        self.kafka.create_topic("processed-offsets", 3)
        self.kafka.create_topic("consumer-lag", 1)
        for name in _EXPECTED:
            self.kafka.create_topic(f"topic-{name}", 2)
            self.start_query(name, [f"topic-{name}"], (0, 40, -40))
        self.join()
        self._load = asyncio.ensure_future(self._run_batches())

    async def trouble(self) -> None:
        if self.loop.now_s < _WARM_UP_S:
            await self.pass_time(_WARM_UP_S)
            return
        kind = self.random.choice(("restart", "rolling restart", "rebalance"))
        self.trace.add(kind)
        if kind == "restart":
            self.kill_all()
            self.join()
        elif kind == "rebalance":
            self.join()
            self.leave()
        else:
            for _ in range(3):
                self.join()
                await self.pass_time(20.0)
                self.leave()
        await self.pass_time(self.random.choice((30.0, 90.0, 250.0)))

    async def rest(self) -> None:
        newest = self.invariants.newest.values()
        statuses = {event.query or "": event.status for event in newest}
        if statuses != _EXPECTED:
            raise Violation(f"the statuses are {statuses}")

    async def _run_batches(self) -> None:
        # Not when heartbeats are due.
        await asyncio.sleep(_TICK_S / 2)
        for tick in range(1_000_000):
            for query in self.queries.values():
                is_failing = self.loop.now_s > _FAILING_S
                # As if the batch that hangs could be made up for at once.
                grows = query.name != "hung" or query.batch_began_s is None
                for log in self.kafka.topics[query.topics[0]].logs:
                    log.grow(1_000 * grows, self.loop.now_s)
                if is_failing and query.batch_began_s is None and query.name in _FAILING:
                    query.batch_began_s = self.loop.now_s
                    query.heartbeat()
                elif query.name == "dead" and is_failing:
                    query.end("dead")
                elif query.name.startswith("slow"):
                    if tick % 6 == 0 or query.name == "slow":
                        query.complete_batch(self._share(query))
                elif not (query.name == "hung" and is_failing):
                    is_stuck = query.name == "stuck" and is_failing
                    query.complete_batch(1.0, (query.topics[0], 0) if is_stuck else None)
            await asyncio.sleep(_TICK_S)

    def _share(self, query: SimulatedQuery) -> float:
        """That of 300 records in each partition: fewer than come."""
        (topic,) = query.topics
        at = query.positions.get(topic, {}).get(0, 0)
        return 300 / (self.kafka.topics[topic].logs[0].end - at)

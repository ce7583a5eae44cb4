"""The world of one seed: what happens, when, and what is checked in between."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from unittest import mock

from aiokafka.structs import ConsumerRecord

from sparklag_schemas import IsolationLevel, ResolvedSettings, Settings
from tests.simulation.clients import in_place_of_kafka
from tests.simulation.clock import VirtualLoop, current_process, virtual_time
from tests.simulation.instances import Instance
from tests.simulation.invariants import Invariants, Violation
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.personalities import Personality, personalities_of
from tests.simulation.queries import SimulatedQuery
from tests.simulation.rules import RULES

_HEARTBEAT_S: Final = 120.0
_REFRESH_S: Final = 60.0
_REST_S: Final = 720.0
"""Time from the last fault until all must be well: a dead driver is reported after 3 heartbeats, a
run that goes on beside another after two minutes."""
_MOST_INSTANCES: Final = 3
_MOST_QUERIES: Final = 6
_TRACE_LINES: Final = 40
_LOGGERS: Final = ("sparklag_service", "sparklag_kafka", "sparklag_schemas", "sparklag", "asyncio")
# How often the service looks at what the simulated clients tell it by themselves.
_INTERVALS: Final = {
    "sparklag_service.intakes.topic._COMMIT_INTERVAL_S": 20.0,
    "sparklag_service.intakes.topic._BACKLOG_INTERVAL_S": 20.0,
    "sparklag_service.intakes.topic._POLL_MS": 14_000,
    "sparklag_service.tracking.tracked_queries._MISSED_S": 30.0,
    "sparklag_kafka.clients.consumer._POLL_MS": 14_000,
    "sparklag_service.view.feed._POLL_MS": 14_000,
    "sparklag_service.view.feed._POLL_POSITION_S": 0.1,
}


@dataclass
class Trace:
    loop: VirtualLoop
    lines: list[str] = field(default_factory=list)
    records: int = 0
    hand_overs: int = 0
    _hash: Any = field(default_factory=hashlib.sha256)

    def add(self, what: str) -> None:
        line = f"{self.loop.now_s:10.3f} {what}"
        self.lines.append(line)
        self._hash.update(line.encode())

    def add_record(self, record: ConsumerRecord) -> None:
        """A record was appended: part of the digest, and no line."""
        self.records += 1
        self._hash.update(f"{self.loop.now_s} {record}".encode())

    @property
    def digest(self) -> str:
        """Of all that happened: equal where a seed was replayed exactly."""
        return str(self._hash.hexdigest()[:16])

    def end(self) -> str:
        return "\n".join(self.lines[-_TRACE_LINES:])


class World:
    """Everything of one seed. Create it on its loop."""

    def __init__(self, loop: VirtualLoop, seed: int, rules: Collection[str] = RULES) -> None:
        self.trace = Trace(loop)
        self.loop: VirtualLoop = loop
        self.random: random.Random = random.Random(seed)
        self.kafka: SimulatedKafka = SimulatedKafka(loop, self.random)
        self.queries: dict[str, SimulatedQuery] = {}
        self._personalities = personalities_of(seed)
        self._reads_committed = "an open transaction" in {p.name for p in self._personalities}
        self._settings = _settings()
        self.invariants = Invariants(
            self.kafka, self.queries, self.trace.add_record, self._settings.silent_after_s, rules
        )
        self.instances: list[Instance] = []
        self._started: list[Instance] = []
        self._names = 0
        self._topics = 0

    async def run(self, hours: float) -> None:
        """Raises Violation."""
        self.begin()
        heartbeats = asyncio.ensure_future(self._heartbeats())
        try:
            while self.loop.now_s < hours * 3600:
                await self.trouble()
                await self.rest()
        finally:
            self.trace.hand_overs = len(self.invariants.rules.hand_overs)
            heartbeats.cancel()
            for instance in self._started:
                instance.kill()
            await asyncio.wait([instance.task for instance in self._started])

    def begin(self) -> None:
        self.kafka.create_topic("processed-offsets", self.random.choice((1, 4)))
        self.kafka.create_topic("consumer-lag", self.random.choice((1, 3)))
        for _ in range(self.random.randint(1, 3)):
            self._create_topic()
        for _ in range(self.random.randint(1, 3)):
            self._start_query()
        self.join()

    async def _heartbeats(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            for query in self.queries.values():
                query.heartbeat()

    async def trouble(self) -> None:
        actions = [
            (self._grow, 30),
            (self._batch, 30),
            (self._start_query, 2),
            (self._end_query, 4),
            (self._restart_query, 4),
            (self.join, 4),
            (self.leave, 3),
            (self._kill, 3),
            (self.kill_all, 1),
            (self._stand_still, 2),
            *((partial(self._act, each), each.weight) for each in self._personalities),
        ]
        names, weights = zip(*actions, strict=True)
        for _ in range(self.random.randint(10, 60)):
            (action,) = self.random.choices(names, weights)
            action()
            await self.pass_time(self.random.choice((0.01, 0.5, 3.0, 20.0, 120.0)))
            if self.random.random() < 0.01:
                await self.pass_time(self.random.choice((120.0, 600.0)))
            if self.random.random() < 0.01:
                await self._outage()

    async def rest(self) -> None:
        """Heal everything, wait, and look whether all is well."""
        self.kafka.heal()
        for instance in self.instances:
            if instance.process.remains_still:
                instance.go_on()
        if not self.instances:
            self.join()
        self.trace.add("rest")
        await self.pass_time(_REST_S)
        for looks_left in (2, 1, 0):
            try:
                self.invariants.at_rest(
                    self.instances, self.loop.now_s, freshness_s=_HEARTBEAT_S + 2 * _REFRESH_S
                )
            except Violation:
                # Something may be on its way just now.
                if not looks_left:
                    raise
                await self.pass_time(0.7)
            else:
                break

    async def _outage(self) -> None:
        """Stops all instances for long and ends the next one soon, before it has published."""
        self.kill_all()
        await self.pass_time(self.random.choice((400.0, 900.0, 1800.0)))
        self.join()
        await self.pass_time(self.random.choice((10.0, 30.0, 90.0)))
        self.kill_all()
        self.join()

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self.invariants.violation is not None:
            raise self.invariants.violation
        for instance in self.instances:
            if instance.failure is not None:
                raise Violation(f"{instance.process} ended: {instance.failure!r}")

    # What happens

    def _act(self, personality: Personality) -> None:
        of_what = personality.act(self)
        self.trace.add(personality.name + ("" if of_what is None else f": {of_what}"))

    def _create_topic(self) -> str:
        self._topics += 1
        name = f"topic-{self._topics}"
        self.kafka.create_topic(name, self.random.randint(1, 3))
        return name

    def source_topics(self) -> list[str]:
        return [name for name in self.kafka.topics if name.startswith("topic-")]

    def _grow(self) -> None:
        for name in self.source_topics():
            for log in self.kafka.topics[name].logs:
                log.grow(self.random.choice((0, 1, 10, 1_000, 50_000)), self.loop.now_s)

    def running(self) -> list[SimulatedQuery]:
        return [query for query in self.queries.values() if query.life == "running"]

    def _batch(self) -> None:
        for query in self.running():
            query.complete_batch(self.random.choice((0.0, 0.5, 1.0, 1.0)))

    def _start_query(self) -> None:
        self.start_query()

    def start_query(
        self, name: str | None = None, topics: list[str] | None = None, *clocks_ms: Sequence[int]
    ) -> SimulatedQuery | None:
        """A new query. None: there are enough."""
        if len(self.queries) >= _MOST_QUERIES:
            return None
        if topics is None:
            topics = self.source_topics()
            topics = self.random.sample(topics, self.random.randint(1, min(2, len(topics))))
        number = len(self.queries) + 1
        level: IsolationLevel = "read_committed" if self._reads_committed else "read_uncommitted"
        query = SimulatedQuery(self.kafka, self.random, number, sorted(topics), name, level)
        self.queries[query.query_id] = query
        query.start(*clocks_ms)
        self.trace.add(f"{query.name} starts on {query.topics}")
        return query

    def _end_query(self) -> None:
        if running := self.running():
            query = self.random.choice(running)
            query.end(self.random.choice(("dead", "dead", "finished", "failed")))
            self.trace.add(f"{query.name}: {query.life}")

    def _restart_query(self) -> None:
        query = self.random.choice(list(self.queries.values()))
        if query.life == "running":
            query.end("dead")
        query.start()
        self.trace.add(f"{query.name} starts again")

    def join(self) -> None:
        if len(self.instances) < _MOST_INSTANCES:
            self._names += 1
            name = f"instance-{self._names}"
            instance = Instance(self.loop, self.kafka, self._settings, name)
            self.instances.append(instance)
            self._started.append(instance)
            self.trace.add(f"{name} joins")

    def leave(self) -> None:
        if len(self.instances) > 1:
            instance = self.random.choice(self.instances)
            if instance.process.remains_still:
                return
            self.instances.remove(instance)
            self.trace.add(f"{instance.process} leaves")
            instance.leave()

    def _kill(self) -> None:
        if self.instances:
            instance = self.random.choice(self.instances)
            self.instances.remove(instance)
            self.trace.add(f"{instance.process} is killed")
            instance.kill()

    def kill_all(self) -> None:
        while self.instances:
            self._kill()

    def _stand_still(self) -> None:
        if self.instances:
            instance = self.random.choice(self.instances)
            if not instance.process.remains_still:
                seconds = self.random.choice((1.0, 10.0, 20.0, 70.0))
                self.trace.add(f"{instance.process} is suspended for {seconds:g} s")
                instance.stand_still()
                self.loop.call_world(seconds, self._go_on, instance)

    def _go_on(self, instance: Instance) -> None:
        if instance.process.remains_still:
            self.trace.add(f"{instance.process} goes on")
            instance.go_on()


def simulate(
    seed: int, hours: float, rules: Collection[str] = RULES, kind: type[World] = World
) -> Trace:
    """Run a seed of a kind of world under these rules; what happened. Raises Violation, with the
    end of the trace."""
    with virtual_time(seed) as loop, ExitStack() as stack:
        for target, value in _INTERVALS.items():
            stack.enter_context(mock.patch(target, value))
        asyncio.set_event_loop(loop)
        world = kind(loop, seed, rules)
        stack.enter_context(in_place_of_kafka(world.kafka))
        handler = stack.enter_context(_errors())
        try:
            loop.run_until_complete(world.run(hours))
            if handler.lines:
                raise Violation(f"it logs an error: {handler.lines[0]}")
        except Violation as violation:
            world.trace.add(str(violation))
            raise Violation(f"seed {seed}: {violation}\n{world.trace.end()}") from violation
        finally:
            _end_tasks(loop)
        return world.trace


def _end_tasks(loop: VirtualLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=60.0))


class _Errors(logging.Handler):
    """Errors that processes log while they live."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        process = current_process()
        if process is None or process.is_alive:
            self.lines.append(self.format(record))


@contextmanager
def _errors() -> Iterator[_Errors]:
    handler, loggers = _Errors(), [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield handler
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
            logger.propagate = True


def _settings() -> ResolvedSettings:
    return Settings(
        bootstrap_servers="broker:9000",
        refresh_interval_s=_REFRESH_S,
        heartbeat_s=_HEARTBEAT_S,
        publish_interval_s=1.0,
        earliest_interval_s=60.0,
        metadata_interval_s=60.0,
    ).resolved()

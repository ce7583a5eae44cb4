"""What it costs to measure 10,000 partitions, and how that grows: CPU, stalls of the loop, memory.

First the service's enricher and evaluator in this process, in turn with aiokafka's `end_offsets`;
then the whole service in a process of its own, as the system accounts for it (Linux only). 40,000
partitions are more files than one broker may open on most machines: there are several for them.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Final
from uuid import uuid4

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition

from benchmarks.comparison import Row, at_most, ms, say, times, within
from benchmarks.costs import Costs, Step
from benchmarks.large_cluster import create_topics, large_cluster
from benchmarks.loop_stall import longest_stall
from benchmarks.service_process import ServiceProcess, service_process, wait_for
from benchmarks.simulated_drivers import report
from sparklag_kafka.access import quiet_client_logs
from sparklag_schemas import Observation, Settings, SourcePosition
from sparklag_schemas.runtime.garbage_collection import SurvivorsFrozen
from sparklag_schemas.runtime.queue import by_count
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.counters import Counters
from sparklag_service.enrichment.cluster_offsets import MeasureTime
from sparklag_service.enrichment.enricher import Enricher
from sparklag_service.evaluation.evaluator import Evaluator
from sparklag_service.intakes import delivery_queue
from sparklag_service.supervision import Supervisor
from sparklag_service.tracking.query_state import QueryState
from sparklag_service.tracking.tracked_queries import TrackedQueries
from sparklag_service.tracking.tracker import Tracker

CPU_BUDGET_MS: Final = 100.0
STALL_BUDGET_MS: Final = 25.0
MEMORY_BUDGET_MB: Final = 120.0
PASS_BUDGET: Final = 1.5
"""Times one `end_offsets`, for the measuring alone."""

TOPICS_EACH: Final = 2
PARTITIONS_EACH: Final = 50
QUERIES: Final = 100
_GROWTH: Final = (10, QUERIES, 400)
"""Queries, each of 100 partitions."""
_QUERIES_PER_PAUSE: Final = 25
_ROUNDS: Final = 20
_WARM_UP: Final = 3
_WATCHED_S: Final = 20.0
_CREATED_S: Final = 600.0


def run() -> list[Row]:
    """Rows for the pass, for its growth, and for the service as a whole."""
    quiet_client_logs()
    # As `sparklag serve` does.
    collector = SurvivorsFrozen()
    gc.callbacks.append(collector)
    try:
        return _run()
    finally:
        gc.callbacks.remove(collector)
        gc.unfreeze()


def _run() -> list[Row]:
    with measured_cluster(QUERIES) as servers:
        small = asyncio.run(_passes(servers, _GROWTH[0]))
        usual = asyncio.run(_passes(servers, QUERIES))
        with service_process(servers, publish_interval_s=1) as service:
            whole = asyncio.run(_whole_service(servers, service))
    with measured_cluster(_GROWTH[-1]) as servers:
        large = asyncio.run(_passes(servers, _GROWTH[-1]))
    return [*usual.rows(), *_growth(small, usual, large), *whole]


@contextmanager
def measured_cluster(queries: int) -> Iterator[str]:
    """Brokers with the topics of so many queries."""
    with large_cluster(queries * TOPICS_EACH * PARTITIONS_EACH) as cluster:
        _create_topics(cluster.bootstrap_servers, queries)
        yield cluster.bootstrap_servers


@dataclass(frozen=True)
class _Passes:
    """Passes over so many queries, and `end_offsets` of the same partitions."""

    queries: int
    measuring: Costs
    evaluated: Costs
    bare: Costs
    busy_stall_ms: float

    @property
    def what(self) -> str:
        return f"pass, {self.queries * TOPICS_EACH * PARTITIONS_EACH:,} partitions"

    def rows(self) -> list[Row]:
        """Beside `end_offsets`; the budgets in milliseconds are those of the usual size."""
        against, what, bare = "end_offsets", self.what, self.bare
        ours, whole = self.measuring, self.evaluated
        is_usual = self.queries == QUERIES
        cpu_ms, stall_ms = (CPU_BUDGET_MS, STALL_BUDGET_MS) if is_usual else (None, None)
        worst = f"{what}: worst stall (CPU), metadata and earliest too"
        return [
            at_most(f"{what}: measuring: CPU", ours.cpu_ms, against, bare.cpu_ms, PASS_BUDGET),
            at_most(f"{what}: measuring: time", ours.wall_ms, against, bare.wall_ms, PASS_BUDGET),
            within(f"{what}: with evaluation: CPU", whole.cpu_ms, against, bare.cpu_ms, cpu_ms),
            within(f"{what}: stall (CPU)", whole.stall_ms, against, bare.stall_ms, stall_ms),
            _alone(worst, [self.busy_stall_ms], stall_ms),
        ]


def _growth(*passes: _Passes) -> Iterator[Row]:
    """Ten times the partitions may cost ten times the CPU, and not more."""
    for fewer, more in pairwise(passes):
        factor = more.queries / fewer.queries
        ratio = median(more.measuring.cpu_ms) / median(fewer.measuring.cpu_ms)
        yield Row(
            f"{more.what}: measuring: CPU",
            ms(more.measuring.cpu_ms),
            f"{ms(fewer.measuring.cpu_ms)}, 1/{factor:g} of them",
            times(ratio),
            f"≤ {times(factor)}",
            ratio <= factor,
        )
    largest = passes[-1]
    yield from largest.rows()[1:]


async def _passes(bootstrap_servers: str, queries: int) -> _Passes:
    states = _states(queries)
    partitions = [
        TopicPartition(topic, number)
        for topic in map(measured_topic, range(queries * TOPICS_EACH))
        for number in range(PARTITIONS_EACH)
    ]
    evaluator = Evaluator("service", latest_max_age_s=60.0)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap_servers) as consumer:
        # What is not in its metadata it would look for topic by topic.
        consumer._client.set_topics({partition.topic for partition in partitions})
        await consumer._client.force_metadata_update()
        async with _enriching(bootstrap_servers) as enricher:
            await _until_measurable(enricher, states, len(partitions))

            async def measuring() -> None:
                await _ask(enricher, states)
                async for _ in _all_measured(enricher, len(states)):
                    pass

            async def evaluated() -> None:
                await _ask(enricher, states)
                async for measured, requested_s in _all_measured(enricher, len(states)):
                    for state in measured:
                        moment = MeasureTime(epoch_ms(), time.monotonic(), requested_s)
                        evaluator.evaluate(
                            state,
                            enricher.offsets,
                            moment,
                            event_id=str(uuid4()),
                            cause="refresh",
                        )
                        await asyncio.sleep(0)

            async def bare() -> None:
                if len(await consumer.end_offsets(partitions)) != len(partitions):
                    raise RuntimeError("end_offsets left some out")

            say(f"measuring_pass: {len(partitions):,} partitions, in turn with end_offsets")
            alone, whole, theirs = Costs(), Costs(), Costs()
            sides = ((measuring, alone), (evaluated, whole), (bare, theirs))
            for number in range(_WARM_UP + _ROUNDS):
                for run_pass, costs in sides[:: 1 - 2 * (number % 2)]:
                    await costs.take(run_pass, keep=number >= _WARM_UP)
            unknown = [topic.unknown for topic in enricher.offsets["default"].values()]
            if any(unknown):
                raise RuntimeError(f"not measured: {unknown}")
        # The same with everything that is usually read every 10 or 30 s read all the time.
        busy_s = 0.0
        async with _enriching(
            bootstrap_servers, metadata_interval_s=1.0, earliest_interval_s=1.0
        ) as enricher:
            await _until_measurable(enricher, states, len(partitions))
            for _ in range(_ROUNDS):
                async with longest_stall() as stall:
                    await _ask(enricher, states)
                    async for _ in _all_measured(enricher, len(states)):
                        pass
                    await asyncio.sleep(0.2)
                busy_s = max(busy_s, stall.longest_s)
    return _Passes(queries, alone, whole, theirs, busy_s * 1e3)


async def _ask(enricher: Enricher, states: Sequence[QueryState]) -> None:
    # As the service's refresh does.
    for chunk in by_count(states, _QUERIES_PER_PAUSE):
        enricher.request(*chunk)
        await asyncio.sleep(0)


@asynccontextmanager
async def _enriching(bootstrap_servers: str, **fields: Any) -> AsyncIterator[Enricher]:
    settings = Settings(bootstrap_servers=bootstrap_servers, **fields).resolved(bootstrap_servers)
    counters = Counters()
    tracked = TrackedQueries(settings, delivery_queue(1, counters), counters)
    enricher = Enricher(settings, tracked, Supervisor())
    running = asyncio.create_task(enricher.run())
    try:
        yield enricher
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await enricher.aclose()


async def _all_measured(
    enricher: Enricher, queries: int
) -> AsyncIterator[tuple[list[QueryState], float]]:
    while queries:
        measured = await enricher.next_measured()
        queries -= len(measured[0])
        yield measured


async def _until_measurable(
    enricher: Enricher, states: Sequence[QueryState], partitions: int
) -> None:
    """A broker that was told to create so many partitions has them only some time later."""
    deadline = time.monotonic() + _CREATED_S
    offsets = enricher.offsets["default"]
    while True:
        await _ask(enricher, states)
        async for _ in _all_measured(enricher, len(states)):
            pass
        latest = sum(len(topic.latest["read_uncommitted"]) for topic in offsets.values())
        if latest == partitions and not any(topic.unknown for topic in offsets.values()):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"the partitions are not there after {_CREATED_S:g} s")
        await asyncio.sleep(1)


async def _whole_service(bootstrap_servers: str, service: ServiceProcess) -> list[Row]:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        before_mb = service.peak_mb()
        for observation in map(measured_observation, range(QUERIES)):
            await report(producer, observation)
        await producer.flush()
        await asyncio.to_thread(wait_for, lambda: _all_known(service))
        await asyncio.sleep(2)
        say(f"measuring_pass: the whole service, {2 * _WATCHED_S:.0f} s")
        quiet = await _cpu_a_second(service, lambda: asyncio.sleep(1))

        async def write_everywhere() -> None:
            for query in range(QUERIES):
                await producer.send(measured_topic(query * TOPICS_EACH), b"order", partition=0)
            await asyncio.sleep(1)

        moving = await _cpu_a_second(service, write_everywhere)
        peak_mb = service.peak_mb()
    return [
        _alone("service, 1 s (one refresh), lag unchanged: CPU", quiet, CPU_BUDGET_MS),
        _alone("service, 1 s, every query's lag changes and is published: CPU", moving, None),
        Row(
            "service: peak memory",
            f"{peak_mb:.0f} MB",
            f"{before_mb:.0f} MB, before the first query",
            reach=f"≤ {MEMORY_BUDGET_MB:g} MB",
            reached=peak_mb <= MEMORY_BUDGET_MB,
        ),
    ]


async def _cpu_a_second(service: ServiceProcess, second: Step) -> list[float]:
    """Milliseconds of CPU it takes in a second, for each of `_WATCHED_S`."""
    samples = []
    began_s, cpu_s = time.monotonic(), service.cpu_s()
    for _ in range(int(_WATCHED_S)):
        await second()
        now_s, now_cpu_s = time.monotonic(), service.cpu_s()
        samples.append((now_cpu_s - cpu_s) / (now_s - began_s) * 1e3)
        began_s, cpu_s = now_s, now_cpu_s
    return samples


def _all_known(service: ServiceProcess) -> bool:
    summaries = service.get("/lag").decode()
    return all(_query_id(query) in summaries for query in range(QUERIES))


def _alone(what: str, ours: list[float], budget_ms: float | None) -> Row:
    reach = f"≤ {budget_ms:g} ms" if budget_ms else ""
    return Row(what, ms(ours), "", "", reach, median(ours) <= budget_ms if budget_ms else None)


def _states(queries: int) -> list[QueryState]:
    tracker = Tracker(lambda _, alias: alias)
    changes = [tracker.observe(None, measured_observation(query)) for query in range(queries)]
    return [change.state for change in changes if change is not None]


def measured_observation(query: int, processed: int = 0) -> Observation:
    """As a driver reports that a batch has read so many records of each partition."""
    topics = range(query * TOPICS_EACH, (query + 1) * TOPICS_EACH)
    return Observation(
        observation_id=str(uuid4()),
        query_id=_query_id(query),
        run_id=_query_id(query),
        query=f"query-{query}",
        cause="progress",
        observed_at=epoch_ms(),
        batch_id=processed,
        sources=[
            SourcePosition(
                source=0,
                processed={
                    measured_topic(topic): dict.fromkeys(range(PARTITIONS_EACH), processed)
                    for topic in topics
                },
            )
        ],
    )


def _query_id(query: int) -> str:
    return f"00000000-0000-4000-8000-{query:012d}"


def measured_topic(number: int) -> str:
    return f"measured-{number:03d}"


def _create_topics(bootstrap_servers: str, queries: int) -> None:
    topics = queries * TOPICS_EACH
    say(f"measuring_pass: creating {topics * PARTITIONS_EACH:,} partitions")
    names = [measured_topic(number) for number in range(topics)]
    asyncio.run(create_topics(bootstrap_servers, names, PARTITIONS_EACH))

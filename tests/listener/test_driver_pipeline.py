"""The pipeline from events to a sink: failures are counted, and the rest continues."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from sparklag_listener import driver_pipeline
from sparklag_listener.driver_pipeline import DriverPipeline, Record, Sink
from sparklag_listener.events.event_queue import (
    ActiveQuery,
    Idled,
    PolledEvent,
    Progressed,
    QueuedEvent,
    Started,
    Terminated,
)
from sparklag_listener.events.kafka_source import QueryDescription
from sparklag_listener.stats import Stats
from sparklag_schemas import Observation, ResolvedSettings, Settings, SourcePosition
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.settings import ClusterSettings
from tests import samples
from tests.background_task import background
from tests.listener.fakes import session_without_jvm
from tests.logged import logged
from tests.waiting import DEADLINE_S, holds

SOURCE = SourcePosition(source=0, topics=["s1"], bootstrap_servers="broker:9092")
SAMPLE = samples.progress_document("single_kafka.progress1")
QUERY_ID, RUN_ID = SAMPLE["id"], SAMPLE["runId"]
PROGRESS = Progressed(samples.progress_text("single_kafka.progress1"), 20)
STARTED = Started(QUERY_ID, RUN_ID, "orders", 10)
Queue = NewestQueue[Observation]


def describes(query_id: str) -> QueryDescription:
    return QueryDescription((SOURCE,), "file:/checkpoint")


def progress(query: int, batch: int) -> Progressed:
    document = {**SAMPLE, "id": f"query-{query}", "runId": f"run-{query}", "batchId": batch}
    return Progressed(json.dumps(document), batch)


class Taken:
    def __init__(self) -> None:
        self.observations: list[Observation] = []
        self.bootstrap_servers: list[str] = []

    async def __call__(self, queue: Queue, settings: ResolvedSettings, stats: Stats) -> None:
        self.bootstrap_servers.append(settings.bootstrap_servers)
        while True:
            self.observations.append(await queue.get())
            stats.published += 1
            queue.task_done()

    def causes(self) -> list[str]:
        return [observation.cause for observation in self.observations]


class Clogged(Taken):
    """A sink that takes one observation and never gets rid of it."""

    async def __call__(self, queue: Queue, settings: ResolvedSettings, stats: Stats) -> None:
        self.observations.append(await queue.get())
        await asyncio.Event().wait()


class FailsTwice(Taken):
    """A sink that fails in a way nobody thought of, and the third time does not."""

    async def __call__(self, queue: Queue, settings: ResolvedSettings, stats: Stats) -> None:
        if len(self.bootstrap_servers) < 2:
            self.bootstrap_servers.append(settings.bootstrap_servers)
            raise ZeroDivisionError("unexpected")
        await super().__call__(queue, settings, stats)


@asynccontextmanager
async def running(
    sink: Sink | None,
    describe: Callable[[str], QueryDescription] = describes,
    settings: Settings | None = None,
    record: Record | None = None,
) -> AsyncIterator[DriverPipeline]:
    session = session_without_jvm(describe)
    pipeline = DriverPipeline(settings or Settings(), session, sink, Stats(), "listener", record)
    async with background(pipeline.run()):
        yield pipeline


@pytest.fixture
def sink() -> Taken:
    return Taken()


@pytest.fixture
async def pipeline(sink: Taken) -> AsyncIterator[DriverPipeline]:
    async with running(sink) as made:
        yield made


async def receive(pipeline: DriverPipeline, *events: QueuedEvent) -> None:
    for event in events:
        pipeline.receive(event)
    await asyncio.wait_for(pipeline.flush(), DEADLINE_S)


@pytest.mark.parametrize(
    ("configured", "used"), [(None, "broker:9092"), ("mine:9092", "mine:9092")]
)
async def test_brokers_are_set_or_those_of_the_first_query(
    configured: str | None, used: str
) -> None:
    sink = Taken()
    async with running(sink, settings=Settings(bootstrap_servers=configured)) as pipeline:
        await receive(pipeline, STARTED)
    assert sink.bootstrap_servers == [used]


async def test_without_brokers_it_logs_once_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    sink = Taken()
    async with running(sink, lambda query_id: QueryDescription()) as pipeline:
        await receive(pipeline, PROGRESS, Idled(QUERY_ID, RUN_ID, 30))
        stats = pipeline.stats()
        assert sink.observations == []
        assert stats.queued == 2
        assert "bootstrap_servers" in str(stats.last_error)
        pipeline.drop_remaining()
        assert (pipeline.stats().dropped, pipeline.stats().queued) == (2, 0)
    lines = [line for line in logged(caplog) if "brokers" in line]
    assert len(lines) == 2, "once when it happens, once for what is lost"
    assert "closed with 2 observations" in lines[1]


async def test_brokers_that_the_settings_contradict_are_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = SourcePosition(source=0, topics=["orders"], bootstrap_servers="SSL://broker:9092")
    sink = Taken()
    async with running(sink, lambda query_id: QueryDescription((source,))) as pipeline:
        await receive(pipeline, STARTED, PROGRESS)
        assert (sink.observations, pipeline.stats().queued) == ([], 2)
        (line,) = [each for each in logged(caplog) if "kafka.bootstrap.servers" in each]
        assert "'SSL://broker:9092': contradicts kafka.security_protocol = 'PLAINTEXT'" in line
        pipeline.drop_remaining()


async def test_a_malformed_event_is_counted_and_skipped(
    sink: Taken, pipeline: DriverPipeline, caplog: pytest.LogCaptureFixture
) -> None:
    await receive(pipeline, STARTED, Progressed('{"id": 5}', 15), PROGRESS)
    stats = pipeline.stats()
    assert sink.causes() == ["started", "progress"]
    assert stats.failed == 1
    assert stats.last_error is not None
    assert stats.last_error in caplog.text


async def test_a_run_is_described_once() -> None:
    requested: list[str] = []

    def describe(query_id: str) -> QueryDescription:
        requested.append(query_id)
        return describes(query_id)

    async with running(Taken(), describe) as pipeline:
        await receive(pipeline, STARTED, STARTED, STARTED)
    assert requested == [QUERY_ID]


async def test_a_run_whose_progress_came_before_its_start_is_described() -> None:
    sink = Taken()
    async with running(sink, settings=Settings(bootstrap_servers="broker:9092")) as pipeline:
        await receive(pipeline, PROGRESS, PolledEvent(STARTED, lost=False))
    assert [each.checkpoint_location for each in sink.observations] == [None, "file:/checkpoint"]
    assert sink.causes() == ["progress", "started"]
    assert sink.observations[0].sources[0].processed == sink.observations[1].sources[0].processed


async def test_a_late_description_is_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_pipeline, "_DESCRIBE_TIMEOUT_S", 0.05)
    answering = threading.Event()

    def describe(query_id: str) -> QueryDescription:
        assert answering.wait(60)
        return describes(query_id)

    sink = Taken()
    refreshed = ActiveQuery(QUERY_ID, RUN_ID, 30)
    try:
        async with running(sink, describe, Settings(bootstrap_servers="broker:9092")) as pipeline:
            await receive(pipeline, STARTED, PROGRESS)
            assert sink.causes() == ["progress"]
            assert "did not describe" in str(pipeline.stats().last_error)
            monkeypatch.undo()
            answering.set()
            await receive(pipeline, refreshed, refreshed)
    finally:
        answering.set()
    assert sink.causes() == ["progress", "refresh", "refresh"]
    described = [each.checkpoint_location for each in sink.observations]
    assert described == [None, "file:/checkpoint", "file:/checkpoint"]
    assert sink.observations[1].sources[0].bootstrap_servers == "broker:9092"


async def test_a_failed_task_is_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(driver_pipeline, "_RESTART_PAUSE_S", 0.01)
    taken = FailsTwice()
    async with running(taken) as pipeline:
        await receive(pipeline, STARTED)
        assert taken.causes() == ["started"]
        assert pipeline.stats().failed == 2
    assert "publisher failed, starting it again" in caplog.text


async def test_a_clogged_sink_keeps_the_newest_of_each_query() -> None:
    sink = Clogged()
    settings = Settings(bootstrap_servers="broker:9092", queue_size=10)
    async with running(sink, settings=settings) as pipeline:
        pipeline.receive(progress(0, 0))
        await holds(lambda: bool(sink.observations), "the first one is taken")
        for batch in range(1, 50):
            for query in range(3):
                pipeline.receive(progress(query, batch))
            await asyncio.wait_for(pipeline._events.join(), DEADLINE_S)
        stats = pipeline.stats()
        assert stats.queued == 11, "ten wait, one is in hand"
        assert stats.dropped == 3 * 49 - 10
        left = [pipeline._observations.get_nowait() for _ in range(10)]
    newest = {observation.query_id: observation.batch_id for observation in left}
    assert newest == {"query-0": 49, "query-1": 49, "query-2": 49}


async def test_lost_events_count_once_and_the_first_is_logged(
    sink: Taken, pipeline: DriverPipeline, caplog: pytest.LogCaptureFixture
) -> None:
    ended = Terminated(QUERY_ID, RUN_ID, "it broke", 40)
    events = (STARTED, PROGRESS, ended)
    # The bus brings them late.
    await receive(pipeline, *[PolledEvent(event) for event in events], *events)
    stats = pipeline.stats()
    assert sink.causes() == ["started", "progress", "terminated"]
    assert sink.observations[-1].exception == "it broke"
    assert (stats.recovered, stats.observed, stats.ignored, stats.published) == (3, 3, 3, 3)
    (warning,) = [line for line in logged(caplog) if "bus" in line]
    assert "lost an event (started) of query orders" in warning
    assert "spark.scheduler.listenerbus.eventqueue.streams.capacity" in warning


async def test_a_late_event_is_not_lost(
    sink: Taken, pipeline: DriverPipeline, caplog: pytest.LogCaptureFixture
) -> None:
    ended = Terminated(QUERY_ID, RUN_ID, None, 40)
    for event in (STARTED, PROGRESS, ended):
        await receive(pipeline, event, PolledEvent(event))
    stats = pipeline.stats()
    assert sink.causes() == ["started", "progress", "terminated"]
    assert (stats.recovered, stats.observed, stats.ignored) == (0, 3, 0)
    assert logged(caplog) == []


async def test_a_refresh_is_no_event_of_spark(sink: Taken, pipeline: DriverPipeline) -> None:
    await receive(
        pipeline, STARTED, ActiveQuery(QUERY_ID, RUN_ID, 30), ActiveQuery("another", "run", 30)
    )
    stats = pipeline.stats()
    assert sink.causes() == ["started", "refresh"]
    assert (stats.observed, stats.published, stats.ignored) == (1, 2, 0)


async def test_a_flood_of_events_keeps_the_newest_of_each_query() -> None:
    held = threading.Event()

    def describe(query_id: str) -> QueryDescription:
        assert held.wait(60)
        return describes(query_id)

    sink = Taken()
    settings = Settings(bootstrap_servers="broker:9092", queue_size=10)
    async with running(sink, describe, settings) as pipeline:
        pipeline.receive(STARTED)
        for batch in range(1_000):
            for query in range(3):
                pipeline.receive(progress(query, batch))
            assert pipeline._events.qsize() <= 10
        held.set()
        await receive(pipeline, Terminated("query-0", "run-0", None, 1_001))
        stats = pipeline.stats()
    newest = {each.query_id: each for each in sink.observations}
    assert [newest[f"query-{query}"].batch_id for query in range(3)] == [999] * 3
    assert newest["query-0"].cause == "terminated"
    assert stats.dropped == 3_002 - stats.published > 2_900
    assert stats.observed == 3_002


async def test_an_event_after_its_end_is_not_kept() -> None:
    async with running(Taken()) as pipeline:
        pipeline.drop_remaining()
        pipeline.receive(STARTED)
        assert pipeline._events.qsize() == 0


class Recorded:
    """A record that keeps everything, once its store is there."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []
        self.store_is_there = asyncio.Event()

    async def __call__(self, queue: Queue, stats: Stats) -> None:
        while True:
            observation = await queue.get()
            await self.store_is_there.wait()
            self.observations.append(observation)
            stats.recorded += 1
            queue.task_done()


async def test_a_store_that_is_away_does_not_hold_up_publishing() -> None:
    sink, record = Taken(), Recorded()
    async with running(sink, record=record) as pipeline:
        pipeline.receive(STARTED)
        pipeline.receive(PROGRESS)
        await holds(lambda: pipeline.stats().published == 2, "both are published")
        assert pipeline.stats().queued == 2
        flushing = asyncio.create_task(pipeline.flush())
        await asyncio.sleep(0)
        assert not flushing.done()
        record.store_is_there.set()
        await asyncio.wait_for(flushing, DEADLINE_S)
        assert record.observations == sink.observations
        assert pipeline.stats().recorded == 2


@pytest.mark.parametrize(
    ("pattern", "servers", "warned"),
    [
        (".*", "broker:9092", True),
        ("orders-.*", "broker:9092", False),
        ("[", "broker:9092", False),
        (".*", "east:9092", False),
    ],
)
async def test_a_pattern_that_matches_sparklags_own_topics_is_one_line(
    pattern: str, servers: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    source = SourcePosition(source=0, topic_pattern=pattern, bootstrap_servers=servers)
    sink = Taken()
    settings = Settings(
        bootstrap_servers="broker:9092",
        clusters={"east": ClusterSettings(bootstrap_servers="east:9092")},
    )
    async with running(sink, lambda _: QueryDescription((source,)), settings) as pipeline:
        await receive(pipeline, STARTED)
    output = [
        line for line in logged(caplog) if "sparklag's own consumer-lag, processed-off" in line
    ]
    assert len(output) == warned

"""The query poller: its events for each answer of Spark, and that no answer can hurt it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from sparklag_listener.events import query_poller
from sparklag_listener.events.event_queue import (
    ActiveQuery,
    PolledEvent,
    Progressed,
    QueryEvent,
    QueuedEvent,
    Started,
    Terminated,
)
from sparklag_listener.events.observer import Observer
from sparklag_listener.events.query_poller import QueryPoller
from sparklag_listener.events.session import ConnectionLost, SparkUnavailable
from sparklag_listener.stats import Stats
from sparklag_schemas import MalformedMessage
from tests import samples
from tests.listener.fakes import FakeListener, FakeObservedSession
from tests.logged import logged
from tests.waiting import DEADLINE_S, holds

SAMPLE = samples.progress_document("single_kafka.progress1")
QUERY, RUN, BATCH = SAMPLE["id"], SAMPLE["runId"], SAMPLE["batchId"]
PROGRESS = Progressed(samples.progress_text("single_kafka.progress1"), 20)
STARTED = Started(QUERY, RUN, "orders", 10)


class Counted:
    """A poller with what it puts, which an observer gets as in a driver."""

    def __init__(self, heartbeat_s: float, poll_interval_s: float | None = None) -> None:
        self.session = FakeObservedSession()
        self.queries = self.session.queries
        self.observer = Observer("default")
        self.stats = Stats()
        self.output: list[QueuedEvent] = []
        self.poller = QueryPoller(
            self.session, self.observer, self._put, self.stats, heartbeat_s, poll_interval_s
        )
        self.task = asyncio.create_task(self.poller.run())

    def starts(self, batch_id: int | None = None, text: str | None = None) -> None:
        self.observe(STARTED)
        self.queries.runs(QUERY, RUN, batch_id, text)

    def observe(self, *events: QueryEvent) -> None:
        for event in events:
            observation = self.observer.observe(event)
            if observation is not None:
                self.poller.mark_observed(observation.query_id)

    def events(self) -> list[QueryEvent]:
        return [each.event for each in self.output if isinstance(each, PolledEvent)]

    def refreshed(self) -> list[str]:
        return [each.run_id for each in self.output if isinstance(each, ActiveQuery)]

    async def polls(self, times: int) -> None:
        """Wait until Spark was polled so many times more, and the poller is done with it."""
        wanted = self.queries.polls + times + 1
        await holds(lambda: self.queries.polls >= wanted, f"{times} more polls")

    def _put(self, output: QueuedEvent) -> None:
        self.output.append(output)
        with suppress(MalformedMessage):
            self.observe(output.event if isinstance(output, PolledEvent) else output)


@asynccontextmanager
async def counting(
    heartbeat_s: float = 0.02, poll_interval_s: float | None = None, has_polled: bool = True
) -> AsyncIterator[Counted]:
    """`has_polled`: after the first poll, where there is a listener."""
    made = Counted(heartbeat_s, poll_interval_s)
    try:
        if has_polled and poll_interval_s is None:
            await asyncio.wait_for(made.poller.first_poll.wait(), DEADLINE_S)
            made.queries.polls = 0
        yield made
    finally:
        made.queries.answering.set()
        made.task.cancel()
        with suppress(asyncio.CancelledError):
            await made.task


@pytest.fixture
async def driver() -> AsyncIterator[Counted]:
    async with counting() as made:
        yield made


async def test_a_query_that_was_just_observed_is_not() -> None:
    async with counting(heartbeat_s=600.0) as driver:
        driver.queries.runs(QUERY, RUN, BATCH)
        driver.observe(STARTED, PROGRESS)
        await driver.poller.run_once(may_be_stopping=False)
        assert driver.queries.polls == 1
        assert driver.refreshed() == []
        assert driver.queries.statuses_read == 0, "its status is not requested"


async def test_a_lost_progress_is_detected_and_a_late_one_is_not() -> None:
    async with counting() as driver:
        driver.starts(BATCH, PROGRESS.text)
        await holds(lambda: bool(driver.events()), "it is detected")
        await driver.polls(3)
        assert [type(event) for event in driver.events()] == [Progressed]
        assert driver.observer.batch_of(QUERY, RUN) == BATCH
        assert driver.queries.texts_read == 1, "the text is not fetched where the batch is known"
    async with counting(heartbeat_s=1.0) as driver:
        driver.queries.bus = None
        driver.starts(BATCH, PROGRESS.text)
        await holds(lambda: driver.queries.polls > 0, "Spark is polled")
        driver.observe(PROGRESS)
        await driver.polls(0)
        assert driver.events() == []
        assert driver.queries.texts_read == 0


async def test_a_batch_that_ends_during_the_poll_is_left_to_its_event(driver: Counted) -> None:
    driver.observe(STARTED)
    waits = 0

    def events_come(timeout_s: float) -> bool:
        nonlocal waits
        waits += 1
        return True

    driver.queries.await_events = events_come  # type: ignore[method-assign]  # a fake
    driver.queries.runs(QUERY, RUN, BATCH, PROGRESS.text)
    await holds(lambda: bool(driver.events()), "it is detected")
    assert waits == 2, "before it is fetched, and before it is reported"


async def test_a_lost_run_is_detected_with_its_position(driver: Counted) -> None:
    driver.queries.runs(QUERY, RUN, BATCH, PROGRESS.text, name="orders")
    await holds(lambda: len(driver.events()) == 2, "it is detected")
    started, progress = driver.events()
    assert isinstance(started, Started)
    assert replace(started, at_ms=10) == STARTED
    assert isinstance(progress, Progressed)
    await driver.polls(3)
    assert len(driver.events()) == 2
    assert driver.refreshed().count(RUN) >= 2


async def test_a_lost_run_that_has_ended_is_left_to_its_events(driver: Counted) -> None:
    driver.queries.runs(QUERY, RUN, BATCH, PROGRESS.text)
    driver.queries.stopping.add(RUN)
    await driver.polls(3)
    assert driver.events() == []


async def test_events_before_the_first_poll_are_not_lost() -> None:
    async with counting(has_polled=False) as driver:
        driver.queries.await_events = never_requested  # type: ignore[method-assign]  # a fake
        driver.queries.fail_once = SparkUnavailable("it will not say")
        driver.queries.runs(QUERY, RUN, BATCH, PROGRESS.text, name="orders")
        driver.queries.stopping.add(RUN)
        await holds(lambda: len(driver.events()) == 2, "it is detected")
        assert [type(event) for event in driver.events()] == [Started, Progressed]
        assert not any(each.lost for each in driver.output if isinstance(each, PolledEvent))
        assert driver.stats.failed == 1


async def test_only_the_start_is_polled_after_its_progress() -> None:
    async with counting(has_polled=False) as driver:
        driver.observe(PROGRESS)
        driver.queries.runs(QUERY, RUN, BATCH, PROGRESS.text, name="orders")
        await driver.polls(3)
        assert [type(event) for event in driver.events()] == [Started]
        assert not any(each.lost for each in driver.output if isinstance(each, PolledEvent))


async def test_a_lost_end_is_detected_with_its_last_batch_and_exception(driver: Counted) -> None:
    driver.starts()
    await driver.polls(1)
    driver.queries.ends(RUN, "it broke", BATCH, PROGRESS.text)
    await holds(lambda: len(driver.events()) == 2, "it is detected")
    progress, ended = driver.events()
    assert isinstance(progress, Progressed)
    assert isinstance(ended, Terminated)
    assert (ended.query_id, ended.run_id, ended.exception) == (QUERY, RUN, "it broke")
    assert driver.observer.observe(PROGRESS) is None, "what comes late is not news"
    assert driver.observer.observe(Terminated(QUERY, RUN, None, 99)) is None
    await driver.polls(3)
    assert len(driver.events()) == 2


async def test_an_end_reported_during_the_poll_is_not_detected_again() -> None:
    async with counting(heartbeat_s=0.5) as driver:
        driver.queries.bus = None
        # Before it has left.
        driver.starts()
        driver.observe(Terminated(QUERY, RUN, None, 30))
        await driver.polls(0)
        assert driver.output == [] or driver.refreshed() == [RUN]
        # After it has left, within the grace.
        driver.observe(Started(QUERY, "run-2", "orders", 40))
        driver.queries.ends(RUN, None)
        polls = driver.queries.polls
        await holds(lambda: driver.queries.polls > polls, "Spark is polled")
        driver.observe(Terminated(QUERY, "run-2", None, 50))
        await driver.polls(0)
        assert driver.events() == []


async def test_a_run_that_starts_during_the_poll_has_not_ended(driver: Counted) -> None:
    driver.queries.answering.clear()
    await holds(lambda: driver.queries.polls == 1, "Spark is polled")
    driver.observe(STARTED)
    driver.queries.answering.set()
    driver.queries.runs(QUERY, RUN, None)
    await driver.polls(3)
    assert driver.events() == []


async def test_a_text_that_cannot_be_read_is_fetched_once(driver: Counted) -> None:
    driver.starts(3, '{"id": 5}')
    await driver.polls(4)
    assert driver.queries.texts_read == 1
    driver.queries.runs(QUERY, RUN, 4, '{"id": 6}')
    await driver.polls(4)
    assert driver.queries.texts_read == 2


@pytest.mark.parametrize(("poll_interval_s", "exception"), [(None, None), (0.02, "no session")])
async def test_a_stopped_session_ends_polling(
    poll_interval_s: float | None, exception: str | None
) -> None:
    """A failure of a stopped Spark is none where a listener has received earlier ones."""
    async with counting(poll_interval_s=poll_interval_s) as driver:
        driver.starts()
        await driver.polls(1)
        driver.queries.ends(RUN, "no session")
        driver.queries.is_session_stopped = True
        await asyncio.wait_for(driver.task, DEADLINE_S)
        (ended,) = (each for each in driver.output if isinstance(each, PolledEvent))
        assert isinstance(ended.event, Terminated)
        assert (ended.event.exception, ended.lost) == (exception, False)


@pytest.mark.parametrize("by_driver", [True, False])
async def test_a_stop_waits_for_the_cause(by_driver: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_poller, "_MAX_STOPPING_S", 600.0 if by_driver else 0.1)
    async with counting() as driver:
        driver.starts()
        await driver.polls(1)
        driver.queries.ends(RUN, None)
        driver.queries.is_session_stopped = driver.queries.is_stopping = True
        if by_driver:
            await driver.polls(3)
            assert driver.events() == []
            driver.queries.is_stopping = False
        await asyncio.wait_for(driver.task, DEADLINE_S)
        assert [type(event) for event in driver.events()] == [Terminated]


async def test_a_jvm_that_is_gone_ends_it_quietly(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sparklag")
    async with counting() as driver:
        driver.observe(STARTED)
        driver.queries.fail = lambda: ConnectionLost("gone")
        await asyncio.wait_for(driver.task, DEADLINE_S)
        assert driver.output == []
        assert driver.stats.failed == 0
    assert logged(caplog) == []


async def test_one_lost_connection_is_not_the_end(driver: Counted) -> None:
    driver.starts()
    for _ in range(5):
        driver.queries.fail_once = ConnectionLost("gone")
        await driver.polls(2)
    assert not driver.task.done()


async def test_errors_are_logged_once_and_it_polls_on(caplog: pytest.LogCaptureFixture) -> None:
    async with counting() as driver:
        driver.queries.fail = lambda: SparkUnavailable("it will not say")
        await driver.polls(5)
        assert driver.stats.failed == 1
        driver.queries.fail = None
        driver.starts()
        await holds(lambda: bool(driver.refreshed()), "it goes on")
    (line,) = logged(caplog)
    assert "does not list its active queries: it will not say" in line


async def test_a_hung_jvm_gets_one_request_and_no_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_poller, "_CALL_TIMEOUT_S", 0.02)
    threads = threading.active_count()
    async with counting() as driver:
        driver.starts()
        driver.queries.answering.clear()
        await holds(lambda: driver.stats.failed == 1, "it is reported")
        driver.output.clear()
        await asyncio.sleep(0.3)
        assert driver.queries.polls == 1
        assert threading.active_count() <= threads + 1
        assert driver.output == []
        driver.queries.answering.set()
        monkeypatch.undo()
        await holds(lambda: bool(driver.refreshed()), "it goes on")
        assert driver.stats.failed == 1


async def test_it_can_be_ended_while_spark_does_not_answer(driver: Counted) -> None:
    driver.queries.answering.clear()
    await holds(lambda: driver.queries.polls == 1, "Spark is polled")
    driver.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(driver.task, DEADLINE_S)


async def test_what_it_remembers_goes_with_the_queries(driver: Counted) -> None:
    for number in range(20):
        query_id, run_id = f"query-{number}", f"run-{number}"
        text = PROGRESS.text.replace(QUERY, query_id).replace(RUN, run_id)
        driver.queries.runs(query_id, run_id, BATCH, text)
        await driver.polls(1)
        driver.queries.ends(run_id, None)
    await holds(lambda: driver.observer.runs() == {}, "all have ended")
    await driver.polls(2)
    assert driver.poller._observed_at_s == {}
    assert driver.poller._polled_batches == {}


async def test_without_a_listener_it_refreshes_at_the_heartbeat() -> None:
    async with counting(heartbeat_s=0.5, poll_interval_s=0.01) as driver:
        driver.observe(STARTED, PROGRESS)
        driver.queries.runs(QUERY, RUN, BATCH)
        await holds(lambda: len(driver.refreshed()) == 2, "two heartbeats")
        assert driver.queries.polls > 6


def never_requested(timeout_s: float) -> bool | None:
    raise AssertionError("there is no listener bus to wait for")


@asynccontextmanager
async def watching(listener: FakeListener) -> AsyncIterator[Counted]:
    async with counting(heartbeat_s=0.01) as driver:
        driver.session.listener = listener
        try:
            yield driver
        finally:
            listener.answering.set()


async def test_a_refused_listener_is_retried_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    listener = FakeListener(registered=False, refusals=1_000_000)
    async with watching(listener) as driver:
        await holds(lambda: listener.attempts >= 4, "it tries on")
        assert driver.stats.failed == 1
        assert "it does not want to" in str(driver.stats.last_error)
        driver.starts()
        await holds(lambda: bool(driver.refreshed()), "it polls on")
        listener.refusals = 0
        await holds(lambda: driver.stats.reregistered == 1, "it is registered")
    assert len(logged(caplog, logging.WARNING)) == 2


async def test_one_refusal_alone_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    # A session that is stopping refuses it.
    listener = FakeListener(registered=False, refusals=1)
    async with watching(listener) as driver:
        await holds(lambda: driver.stats.reregistered == 1, "it is registered")
    assert (listener.attempts, driver.stats.failed) == (2, 0)
    assert "does not take ours" not in caplog.text


async def test_a_client_that_hangs_gets_one_request() -> None:
    listener = FakeListener(registered=False)
    listener.answering.clear()
    async with watching(listener):
        await holds(lambda: listener.attempts == 1, "it is requested")
        await asyncio.sleep(0.1)
        assert listener.attempts == 1


async def test_a_session_that_is_over_takes_no_listener() -> None:
    listener = FakeListener(registered=False)
    async with counting() as driver:
        driver.queries.is_session_stopped = True
        driver.session.listener = listener
        await asyncio.wait_for(driver.task, DEADLINE_S)
    assert listener.attempts == 0

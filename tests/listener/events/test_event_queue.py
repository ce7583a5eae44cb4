"""The event queue: in order from any thread, bounded, and the newest of each run stays."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable

import pytest

from sparklag_listener.events.event_queue import (
    ActiveQuery,
    EventQueue,
    Idled,
    PolledEvent,
    Progressed,
    QueuedEvent,
    Started,
    Terminated,
)
from tests.waiting import DEADLINE_S


def progress(run: int, batch: int, size: int = 0) -> Progressed:
    text = f'{{"id" : "query-{run}", "runId" : "run-{run}", "pad": "{"x" * size}"}}'
    return Progressed(text, batch)


def run_ids(run: int) -> tuple[str, str]:
    return f"query-{run}", f"run-{run}"


def put_all(queue: EventQueue, events: Iterable[QueuedEvent]) -> None:
    for event in events:
        queue.put(event)


async def taken(queue: EventQueue) -> list[QueuedEvent]:
    events = []
    while queue.qsize():
        events.append(await queue.get())
        queue.task_done()
    return events


async def test_events_of_other_threads_wake_the_reader() -> None:
    queue = EventQueue(1_000_000)
    got: list[QueuedEvent] = []

    async def read() -> None:
        while True:
            got.append(await queue.get())
            queue.task_done()

    reading = asyncio.create_task(read())
    threads = [
        threading.Thread(
            target=put_all, args=(queue, [Idled(*run_ids(run), n) for n in range(500)])
        )
        for run in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join, 60)
    await asyncio.wait_for(queue.join(), DEADLINE_S)
    reading.cancel()
    assert len(got) == 8 * 500
    for run in range(8):
        mine = [e.at_ms for e in got if isinstance(e, Idled) and e.run_id == f"run-{run}"]
        assert mine == list(range(500))


async def test_without_room_for_text_long_ones_give_way_however_few_they_are() -> None:
    queue = EventQueue(10_000, max_chars=100_000)
    put_all(queue, [progress(1, batch, size=35_000) for batch in range(100)])
    left = await taken(queue)
    assert len(left) <= 2
    assert left[-1] == progress(1, 99, size=35_000)
    assert queue.dropped + len(left) == 100


async def test_starts_and_ends_stay_and_what_is_left_keeps_its_order() -> None:
    queue = EventQueue(20)
    kept: list[QueuedEvent] = []
    for run in range(30):
        first = Started(*run_ids(run), "orders", 1)
        last = Terminated(*run_ids(run), "it broke", 9)
        result = PolledEvent(progress(run, 5))
        put_all(queue, [first, *(progress(run, batch) for batch in range(50)), result, last])
        kept += [first, result, last]
    left = await taken(queue)
    assert [event for event in left if not isinstance(event, Progressed)] == kept
    assert [event for event in left if isinstance(event, Progressed)][-1] == progress(29, 49)
    for run in range(30):
        assert left.index(Started(*run_ids(run), "orders", 1)) < left.index(progress(run, 49))


async def test_the_newest_idle_event_of_a_run_stays() -> None:
    queue = EventQueue(4)
    for at_ms in range(50):
        put_all(queue, [Idled(*run_ids(1), at_ms), ActiveQuery(*run_ids(2), at_ms)])
    left = await taken(queue)
    assert len(left) <= 4
    assert left[-2:] == [Idled(*run_ids(1), 49), ActiveQuery(*run_ids(2), 49)]


async def test_it_grows_without_a_scan_for_each_event(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    make_room = EventQueue._compact

    def count(queue: EventQueue) -> None:
        nonlocal looked
        looked += 1
        make_room(queue)

    monkeypatch.setattr(EventQueue, "_compact", count)
    queue = EventQueue(10)
    put_all(queue, [progress(run, 1) for run in range(1_000)])
    assert len(await taken(queue)) == 1_000
    assert queue.dropped == 0
    assert looked < 10


async def test_a_text_without_a_run_is_bounded_too() -> None:
    queue = EventQueue(10)
    put_all(queue, [Progressed("{", n) for n in range(100)])
    assert queue.qsize() <= 10


async def test_join_returns_once_all_events_are_done() -> None:
    queue = EventQueue(2)
    await asyncio.wait_for(queue.join(), DEADLINE_S)
    put_all(queue, [progress(1, batch) for batch in range(10)])
    joining = asyncio.create_task(queue.join())
    while queue.qsize():
        await queue.get()
        await asyncio.sleep(0)
        assert not joining.done()
        queue.task_done()
    await asyncio.wait_for(joining, DEADLINE_S)


def test_once_the_loop_is_closed_putting_reports_so() -> None:
    async def make() -> EventQueue:
        return EventQueue(10)

    loop = asyncio.new_event_loop()
    queue = loop.run_until_complete(make())
    loop.close()
    with pytest.raises(RuntimeError):
        queue.put(progress(1, 1))

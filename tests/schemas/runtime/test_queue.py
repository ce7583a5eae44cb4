"""The queue: bounded, never waiting, never losing the newest of a key."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from sparklag_schemas.runtime.queue import NewestQueue
from tests.waiting import DEADLINE_S

Item = tuple[str, int]
"""Key and number: a higher number of a key is newer."""


def queue_of(limit: int, dropped: list[Item] | None = None) -> NewestQueue[Item]:
    return NewestQueue(
        limit, key=lambda item: item[0], on_drop=([] if dropped is None else dropped).append
    )


def drain(queue: NewestQueue[Item]) -> list[Item]:
    return [queue.get_nowait() for _ in range(queue.qsize())]


def test_below_its_limit_it_is_a_plain_queue_in_order() -> None:
    queue = queue_of(10)
    items = [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("b", 2)]
    for item in items:
        queue.put_nowait(item)
    assert drain(queue) == items
    assert queue.dropped == 0
    assert queue.empty()


def test_at_its_limit_the_oldest_of_the_same_key_gives_way() -> None:
    dropped: list[Item] = []
    queue = queue_of(3, dropped)
    for item in [("a", 1), ("b", 1), ("a", 2), ("a", 3)]:
        queue.put_nowait(item)
    assert dropped == [("a", 1)]
    assert queue.dropped == 1
    assert drain(queue) == [("b", 1), ("a", 2), ("a", 3)]


def test_for_a_new_key_an_older_item_of_a_crowded_key_gives_way() -> None:
    dropped: list[Item] = []
    queue = queue_of(3, dropped)
    for item in [("a", 1), ("b", 1), ("b", 2), ("c", 1)]:
        queue.put_nowait(item)
    assert dropped == [("b", 1)]
    assert drain(queue) == [("a", 1), ("b", 2), ("c", 1)]


def test_where_every_item_is_the_newest_of_its_key_it_grows_instead() -> None:
    queue = queue_of(2)
    for key in "abcde":
        queue.put_nowait((key, 1))
    assert queue.qsize() == 5
    assert queue.dropped == 0


@pytest.mark.parametrize("seed", range(50))
def test_whatever_comes_it_stays_bounded_in_order_and_keeps_the_newest_of_each_key(
    seed: int,
) -> None:
    chance = random.Random(seed)
    limit = chance.randint(1, 8)
    keys = "abcdef"[: chance.randint(1, 6)]
    dropped: list[Item] = []
    queue = queue_of(limit, dropped)
    newest: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    puts = gets = 0
    for _ in range(chance.randint(1, 300)):
        if chance.random() < 0.3 and not queue.empty():
            key, number = queue.get_nowait()
            assert number > taken[key], "a key's items come in order, none twice"
            taken[key] = number
            queue.task_done()
            gets += 1
        else:
            key = chance.choice(keys)
            newest[key] += 1
            queue.put_nowait((key, newest[key]))
            puts += 1
        assert queue.qsize() <= max(limit, len(keys))
        assert puts == gets + queue.qsize() + queue.dropped, "each item is somewhere"
        assert queue.unfinished == queue.qsize()
    for key, number in drain(queue):
        assert number > taken[key]
        taken[key] = number
    assert taken == newest, "the newest of every key came out"
    assert len(dropped) == queue.dropped


async def test_join_waits_until_what_was_taken_is_marked_done() -> None:
    queue = queue_of(10)
    queue.put_nowait(("a", 1))
    await queue.get()
    joining = asyncio.create_task(queue.join())
    await asyncio.sleep(0)
    assert not joining.done()
    assert queue.unfinished == 1
    queue.task_done()
    await joining


async def test_join_does_not_wait_for_what_gave_way() -> None:
    queue = queue_of(1)
    for number in range(5):
        queue.put_nowait(("a", number))
    assert await queue.get() == ("a", 4)
    queue.task_done()
    await asyncio.wait_for(queue.join(), DEADLINE_S)


async def test_join_does_not_return_when_the_last_one_gives_way_to_a_newer() -> None:
    queue = queue_of(1)
    queue.put_nowait(("a", 1))
    joining = asyncio.create_task(queue.join())
    await asyncio.sleep(0)
    queue.put_nowait(("a", 2))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not joining.done(), "the newer one is not done"
    await queue.get()
    queue.task_done()
    await joining


async def test_get_waits_for_an_item() -> None:
    queue = queue_of(1)
    getting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.put_nowait(("a", 1))
    assert await getting == ("a", 1)


def test_marking_more_done_than_was_put_is_an_error() -> None:
    queue = queue_of(1)
    with pytest.raises(ValueError, match="task_done"):
        queue.task_done()
    assert queue.unfinished == 0

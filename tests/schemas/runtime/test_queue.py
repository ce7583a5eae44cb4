"""The bounded queue, and chunks of work."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from sparklag_schemas.runtime.queue import NewestQueue, by_count, by_size
from tests.waiting import DEADLINE_S


@pytest.mark.parametrize(
    ("count", "lengths"), [(0, []), (1, [1]), (3, [3]), (4, [3, 1]), (6, [3, 3])]
)
def test_by_count_only_the_last_is_smaller(count: int, lengths: list[int]) -> None:
    chunks = list(by_count(iter(range(count)), 3))
    assert [len(chunk) for chunk in chunks] == lengths
    assert [item for chunk in chunks for item in chunk] == list(range(count))


@pytest.mark.parametrize(
    ("items", "chunks"),
    [
        ([], []),
        (["aaa"], [["aaa"]]),
        # As large as is enough goes on; the one by which it is larger is its last.
        (["aa", "b", "c", "d"], [["aa", "b", "c"], ["d"]]),
        (["aaaaaaa", "b"], [["aaaaaaa"], ["b"]]),
        (["", "", ""], [["", "", ""]]),
    ],
)
def test_a_chunk_ends_when_it_is_large_enough(items: list[str], chunks: list[list[str]]) -> None:
    assert list(by_size(iter(items), len, 3)) == chunks


Item = tuple[str, int]
"""Key and number: a higher number of a key is newer."""


def queue_of(limit: int, dropped: list[Item] | None = None) -> NewestQueue[Item]:
    return NewestQueue(
        limit, key=lambda item: item[0], on_drop=([] if dropped is None else dropped).append
    )


def drain(queue: NewestQueue[Item]) -> list[Item]:
    return [queue.get_nowait() for _ in range(queue.qsize())]


@pytest.mark.parametrize(
    ("limit", "put", "dropped", "left"),
    [
        (10, "a1 b1 a2 a3 b2", "", "a1 b1 a2 a3 b2"),
        (3, "a1 b1 a2 a3", "a1", "b1 a2 a3"),
        (3, "a1 b1 b2 c1", "b1", "a1 b2 c1"),
        (2, "a1 b1 c1 d1 e1", "", "a1 b1 c1 d1 e1"),
    ],
    ids=[
        "below its limit it is a plain queue",
        "the oldest of the same key gives way",
        "for a new key an older item of a crowded key gives way",
        "where every item is the newest of its key it grows",
    ],
)
def test_at_its_limit_an_older_item_goes(limit: int, put: str, dropped: str, left: str) -> None:
    def items(text: str) -> list[Item]:
        return [(item[0], int(item[1])) for item in text.split()]

    dropped_items: list[Item] = []
    queue = queue_of(limit, dropped_items)
    for item in items(put):
        queue.put_nowait(item)
    assert (dropped_items, queue.dropped) == (items(dropped), len(dropped_items))
    assert drain(queue) == items(left)
    assert queue.empty()


@pytest.mark.parametrize("seed", range(50))
def test_it_stays_bounded_and_ordered_and_keeps_the_newest_item_of_each_key(seed: int) -> None:
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


async def test_join_waits_until_taken_items_are_marked_done() -> None:
    queue = queue_of(10)
    queue.put_nowait(("a", 1))
    await queue.get()
    joining = asyncio.create_task(queue.join())
    await asyncio.sleep(0)
    assert not joining.done()
    assert queue.unfinished == 1
    queue.task_done()
    await joining


async def test_join_does_not_wait_for_what_dropped_items() -> None:
    queue = queue_of(1)
    for number in range(5):
        queue.put_nowait(("a", number))
    assert await queue.get() == ("a", 4)
    queue.task_done()
    await asyncio.wait_for(queue.join(), DEADLINE_S)


async def test_join_does_not_return_when_a_newer_item_replaces_the_last() -> None:
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


def test_marking_more_items_done_than_were_put_is_an_error() -> None:
    queue = queue_of(1)
    with pytest.raises(ValueError, match="task_done"):
        queue.task_done()
    assert queue.unfinished == 0

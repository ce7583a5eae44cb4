"""A bounded asyncio queue, and work in chunks, between which the loop runs other tasks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import count, islice
from typing import Generic, TypeVar

Item = TypeVar("Item")


def by_count(items: Iterable[Item], most: int) -> Iterator[list[Item]]:
    """Chunks of at most `most` items."""
    rest = iter(items)
    while chunk := list(islice(rest, most)):
        yield chunk


def by_size(
    items: Iterable[Item], size_of: Callable[[Item], int], enough: int
) -> Iterator[list[Item]]:
    """Chunks that each end with the item that makes them larger than `enough`."""
    chunk: list[Item] = []
    size = 0
    for item in items:
        chunk.append(item)
        size += size_of(item)
        if size > enough:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


class NewestQueue(asyncio.Queue[Item], Generic[Item]):
    """A bounded queue: `put` never waits, and never loses the newest item of a key.

    When it holds `limit` items, an older item is dropped for a newer one of its own key: of the new
    item's key if the queue has an item of it, else of the key that has had several items for the
    longest time. Where every item is the newest of its key, none is dropped: the queue then grows
    to one item for each key.
    """

    def __init__(
        self,
        limit: int,
        key: Callable[[Item], Hashable],
        on_drop: Callable[[Item], None] = lambda item: None,
    ) -> None:
        self._limit = limit
        self._key = key
        self._on_drop = on_drop
        self.dropped = 0
        """The number of dropped items."""
        self.unfinished = 0
        """The number of items not yet marked done, those taken included."""
        self._taken = asyncio.Event()
        super().__init__()

    def _init(self, maxsize: int) -> None:
        self._items: dict[int, Item] = {}
        self._numbers = count()
        self._waiting: dict[Hashable, deque[int]] = {}
        self._crowded: dict[Hashable, None] = {}

    def put_nowait(self, item: Item) -> None:
        dropped = self.dropped
        super().put_nowait(item)
        self.unfinished += 1
        if self.dropped > dropped:
            # After the new item counts: `join` must not see an empty queue.
            self.task_done()

    def task_done(self) -> None:
        super().task_done()
        self.unfinished -= 1

    async def shrinks_to(self, size: int) -> None:
        """Return once the queue holds no more than `size` items."""
        while self.qsize() > size:
            self._taken.clear()
            await self._taken.wait()

    def qsize(self) -> int:
        return len(self._items)

    def empty(self) -> bool:
        return not self._items

    def _put(self, item: Item) -> None:
        key, number = self._key(item), next(self._numbers)
        if len(self._items) >= self._limit:
            self._make_room(key)
        self._items[number] = item
        waiting = self._waiting.setdefault(key, deque())
        waiting.append(number)
        if len(waiting) > 1:
            self._crowded[key] = None

    def _get(self) -> Item:
        self._taken.set()
        return self._remove_oldest(self._key(next(iter(self._items.values()))))

    def _make_room(self, key: Hashable) -> None:
        if key not in self._waiting:
            if not self._crowded:
                return
            key = next(iter(self._crowded))
        self.dropped += 1
        self._on_drop(self._remove_oldest(key))

    def _remove_oldest(self, key: Hashable) -> Item:
        waiting = self._waiting[key]
        number = waiting.popleft()
        if len(waiting) == 1:
            del self._crowded[key]
        elif not waiting:
            del self._waiting[key]
        return self._items.pop(number)

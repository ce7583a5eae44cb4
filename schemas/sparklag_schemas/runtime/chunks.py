"""Items in chunks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

_Item = TypeVar("_Item")


def by_count(items: Iterable[_Item], most: int) -> Iterator[list[_Item]]:
    """Chunks of at most so many items."""
    rest = iter(items)
    while chunk := list(islice(rest, most)):
        yield chunk


def by_size(
    items: Iterable[_Item], size_of: Callable[[_Item], int], enough: int
) -> Iterator[list[_Item]]:
    """Chunks that each end with the item by which they become larger than `enough`."""
    chunk: list[_Item] = []
    size = 0
    for item in items:
        chunk.append(item)
        size += size_of(item)
        if size > enough:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk

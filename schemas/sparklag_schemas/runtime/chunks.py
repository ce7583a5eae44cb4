"""Much at once, in portions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

_Item = TypeVar("_Item")


def by_count(items: Iterable[_Item], most: int) -> Iterator[list[_Item]]:
    """The same in portions of at most so many."""
    rest = iter(items)
    while portion := list(islice(rest, most)):
        yield portion


def by_size(
    items: Iterable[_Item], size_of: Callable[[_Item], int], enough: int
) -> Iterator[list[_Item]]:
    """The same in portions that each end with the item by which they are larger than `enough`."""
    portion: list[_Item] = []
    size = 0
    for item in items:
        portion.append(item)
        size += size_of(item)
        if size > enough:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion

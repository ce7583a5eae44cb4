"""Work on many groups in turns that do not hold the loop for long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from sparklag_service import tasks

_BREATHE_GROUPS: Final = 500

_Item = TypeVar("_Item")


def cut(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    """The same in parts of at most `size`."""
    return (items[start : start + size] for start in range(0, len(items), size))


def with_pauses(groups: Iterable[str]) -> AsyncIterator[str]:
    """The same, letting others go on in between."""
    return tasks.with_pauses(groups, _BREATHE_GROUPS)

"""Which queries, groups or topics a setting selects by name. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


class NamePatterns:
    """Regular expressions of whole names or ids. Without any to include, everything is included;
    what is excluded is left out, included or not."""

    def __init__(self, include: Iterable[str], exclude: Iterable[str]) -> None:
        self._include = [re.compile(pattern) for pattern in include]
        self._exclude = [re.compile(pattern) for pattern in exclude]

    def select(self, *names: str | None) -> bool:
        """Whether an object with these names is selected."""
        present = [name for name in names if name is not None]
        if self._include and not _any_matches(self._include, present):
            return False
        return not _any_matches(self._exclude, present)


def _any_matches(patterns: Iterable[re.Pattern[str]], names: Sequence[str]) -> bool:
    return any(pattern.fullmatch(name) for pattern in patterns for name in names)

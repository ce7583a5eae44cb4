"""Which queries, or topics, some settings are about. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


class NamePatterns:
    """Regular expressions of whole names or ids. Without any to include, all are; what is excluded
    is not taken, included or not."""

    def __init__(self, include: Iterable[str], exclude: Iterable[str]) -> None:
        self._include = [re.compile(pattern) for pattern in include]
        self._exclude = [re.compile(pattern) for pattern in exclude]

    def take(self, *names: str | None) -> bool:
        """Whether what has these names is taken."""
        known = [name for name in names if name is not None]
        if self._include and not _any_fits(self._include, known):
            return False
        return not _any_fits(self._exclude, known)


def _any_fits(patterns: Iterable[re.Pattern[str]], names: Sequence[str]) -> bool:
    return any(pattern.fullmatch(name) for pattern in patterns for name in names)

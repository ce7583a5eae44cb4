"""Query ids by their first characters, as git takes those of commits."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise, takewhile
from typing import Final

MIN_PREFIX: Final = 4
"""Characters."""
_MIN_SHOWN: Final = 8
"""Characters of an id in a table: an id that comes later may begin alike."""


def ids_with_prefix(prefix: str, query_ids: Iterable[str]) -> list[str]:
    """Those of `query_ids` that begin with it, sorted: none where it is too short to be one."""
    if len(prefix) < MIN_PREFIX:
        return []
    return sorted(query_id for query_id in query_ids if query_id.startswith(prefix))


def shown_prefixes(query_ids: Iterable[str]) -> dict[str, str]:
    """By id, its first characters for a table of all of them: eight, or as many more as it takes
    that no other id begins with them. An id with which another begins is whole."""
    ordered = sorted(set(query_ids))
    lengths = dict.fromkeys(ordered, _MIN_SHOWN)
    for first, second in pairwise(ordered):
        same = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
        differs_at = sum(1 for _ in same) + 1
        lengths[first] = max(lengths[first], differs_at)
        lengths[second] = max(lengths[second], differs_at)
    return {query_id: query_id[:length] for query_id, length in lengths.items()}

"""Query ids by their first characters, as git takes those of commits."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise, takewhile
from typing import Final

MIN_PREFIX: Final = 4
"""Characters."""
MIN_PREFIX_SHOWN: Final = 8
"""Characters of an id in a table: others will come that begin alike."""


def ids_with_prefix(prefix: str, query_ids: Iterable[str]) -> list[str]:
    """Those of `query_ids` that begin with it, sorted: none where it is too short to be one."""
    if len(prefix) < MIN_PREFIX:
        return []
    return sorted(query_id for query_id in query_ids if query_id.startswith(prefix))


def shortest_prefixes(query_ids: Iterable[str], at_least: int) -> dict[str, str]:
    """By id, its first characters: at least so many, and as many as no other of the ids begins
    with. An id that another one begins with is whole."""
    ordered = sorted(set(query_ids))
    lengths = dict.fromkeys(ordered, at_least)
    for first, second in pairwise(ordered):
        same = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
        differs_at = sum(1 for _ in same) + 1
        lengths[first] = max(lengths[first], differs_at)
        lengths[second] = max(lengths[second], differs_at)
    return {query_id: query_id[:length] for query_id, length in lengths.items()}

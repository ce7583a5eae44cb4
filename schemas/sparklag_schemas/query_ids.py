"""Query ids by their first characters, as git takes those of commits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MIN_PREFIX: Final = 4
"""Characters."""


def ids_with_prefix(prefix: str, query_ids: Iterable[str]) -> list[str]:
    """Those of `query_ids` that begin with it, sorted: none where it is too short to be one."""
    if len(prefix) < MIN_PREFIX:
        return []
    return sorted(query_id for query_id in query_ids if query_id.startswith(prefix))

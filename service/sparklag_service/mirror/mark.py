"""Whose a committed offset is: what the mirror writes beside it, as Kafka's metadata. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from sparklag_kafka.protocol.offset_fetch import TopicAnswer

_WORD: Final = "sparklag"
_MOST_DIGITS: Final = 19
_REMEMBERED: Final = 4_096
"""Those of one commit are all alike."""


class Mark(NamedTuple):
    """The query that was there, and when. The later one is the greater."""

    observed_at_ms: int
    query_id: str

    @property
    def text(self) -> str:
        """Short: a broker keeps it beside each partition."""
        return f"{_WORD} {self.query_id} {self.observed_at_ms}"


@lru_cache(_REMEMBERED)
def read_mark(metadata: str) -> Mark | None:
    """None for what the mirror did not write."""
    word, _, rest = metadata.partition(" ")
    query_id, _, observed_at = rest.rpartition(" ")
    digits = observed_at.isascii() and observed_at.isdigit() and len(observed_at) <= _MOST_DIGITS
    return Mark(int(observed_at), query_id) if word == _WORD and query_id and digits else None


def is_mirrored(topics: Mapping[str, TopicAnswer]) -> bool:
    """Whether the mirror, of this service or another, has committed to a group."""
    return any(
        read_mark(metadata) is not None
        for topic in topics.values()
        for metadata in topic.metadata.values()
    )

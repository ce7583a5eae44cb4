"""The metadata that the mirror commits with an offset: the query, and when. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from sparklag_kafka.protocol.offset_fetch import CommittedTopic

_PREFIX: Final = "sparklag"
_MAX_DIGITS: Final = 19
_CACHED: Final = 256
"""All partitions of one commit have the same metadata, and are decoded one after the other."""


class CommitMetadata(NamedTuple):
    """The query that had processed the offset, and when; ordered by time."""

    observed_at_ms: int
    query_id: str

    @property
    def text(self) -> str:
        """Short: a broker stores it with each partition."""
        return f"{_PREFIX} {self.query_id} {self.observed_at_ms}"


@lru_cache(_CACHED)
def parse_metadata(text: str) -> CommitMetadata | None:
    """None where the mirror did not write it."""
    prefix, _, rest = text.partition(" ")
    query_id, _, observed_at = rest.rpartition(" ")
    is_number = observed_at.isascii() and observed_at.isdigit() and len(observed_at) <= _MAX_DIGITS
    if prefix != _PREFIX or not query_id or not is_number:
        return None
    return CommitMetadata(int(observed_at), query_id)


def is_mirrored(topics: Mapping[str, CommittedTopic]) -> bool:
    """Whether the mirror, of this service or another, has committed to a group."""
    return any(
        parse_metadata(text) is not None
        for topic in topics.values()
        for text in topic.metadata.values()
    )

"""What is kept of one batch: values, and the text that holds its ranges. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec
from msgspec import Struct

from sparklag_offsets.errors import StoreError

Range = tuple[int, int | None, int]
"""Partition, the first offset of the batch (None: not known), the first one after it."""


class TopicRanges(Struct, frozen=True, array_like=True):
    """The ranges of one topic of one source."""

    source: int
    """As Spark numbers sources."""
    topic: str
    topic_id: str | None
    """Kafka's own id of the topic at that time: one that is created anew has another. None: it was
    not known."""
    bootstrap_servers: str | None
    """Of the source, as the query was given it."""
    ranges: list[Range]
    """In the order of the partitions."""
    assigned: bool = False
    """Whether the query names its partitions: it does not read those that are added."""

    def until(self) -> dict[int, int]:
        """The next offset of each partition."""
        return {partition: until for partition, _, until in self.ranges}


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[TopicRanges]).decode


def written(topics: Iterable[TopicRanges]) -> str:
    """The ranges as they are kept: JSON."""
    return _encode(list(topics)).decode()


class Place(NamedTuple):
    """Where a record stands among those of its query: they rise as they are written."""

    generation: int
    """Rises each time the query goes back to an earlier batch."""
    batch_id: int


@dataclass(frozen=True)
class BatchRecord:
    """A completed batch, or several that nobody told apart. Times are epoch milliseconds."""

    query_id: str
    query: str | None
    """The query's name."""
    cluster: str
    run_id: str | None
    place: Place
    first_batch_id: int
    """The first batch that the ranges span; nearly always the only one."""
    processed_at: int
    """When it completed; never before the record that precedes it."""
    observed_at: int
    is_inferred: bool
    """Nobody told of it: it is what lies between the records before and after it."""
    ranges: str
    """See `written`."""

    @property
    def batch_id(self) -> int:
        """The last batch that the ranges span."""
        return self.place.batch_id

    @cached_property
    def topics(self) -> list[TopicRanges]:
        """The ranges by source and topic. Raises StoreError where they are not what we write."""
        try:
            return _decode(self.ranges)
        except msgspec.DecodeError as error:
            raise StoreError(
                f"the ranges kept of query {self.query_id}, batch {self.batch_id}, are broken:"
                f" {error}"
            ) from error

    def until(self) -> dict[tuple[int, str], dict[int, int]]:
        """By source and topic: the next offset of each partition."""
        return {(topic.source, topic.topic): topic.until() for topic in self.topics}


class KeptQuery(NamedTuple):
    """A query that has records."""

    query_id: str
    query: str | None
    first_at: int
    """When the first batch completed that is kept, epoch milliseconds."""
    last_at: int

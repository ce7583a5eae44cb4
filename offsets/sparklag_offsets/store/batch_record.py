"""The record of one batch, the encoding of its ranges, and the interface of a store of records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Struct

from sparklag_offsets.errors import StoreError, UnusableStore
from sparklag_schemas.codec import NOT_JSON
from sparklag_schemas.text.locations import shown_url

Range = tuple[int, int | None, int]
"""Partition, first offset of the batch (None: not known), exclusive end offset."""


class TopicRanges(Struct, frozen=True, array_like=True):
    """The ranges of one topic of one source."""

    source: int
    """The number that Spark gives the source."""
    topic: str
    topic_id: str | None
    """Kafka's id of the topic at that time: a recreated topic has another id. None: not known."""
    bootstrap_servers: str | None
    """`kafka.bootstrap.servers` of the source, as in the query's options."""
    ranges: list[Range]
    """Ranges in the order of the partitions."""
    assigned: bool = False
    """The query assigns its partitions: it does not read new ones."""

    def end_offsets(self) -> dict[int, int]:
        """The next offset of each partition."""
        return {partition: end for partition, _, end in self.ranges}


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[TopicRanges]).decode


def encode_ranges(topics: Iterable[TopicRanges]) -> str:
    """The ranges as they are stored: JSON."""
    return _encode(list(topics)).decode()


@dataclass(frozen=True)
class BatchRecord:
    """A completed batch, or several batches in one range. Times are epoch milliseconds.

    Generation and batch id are its key within its query; they rise with each record.
    """

    query_id: str
    query: str | None
    """The query's name."""
    cluster: str
    run_id: str | None
    generation: int
    """Rises each time the query goes back to an earlier batch."""
    batch_id: int
    """The last batch that the ranges span."""
    first_batch_id: int
    """The first batch that the ranges span; nearly always the only one."""
    processed_at: int
    """When it completed; never before the preceding record."""
    observed_at: int
    is_inferred: bool
    """True: not observed, but computed from the records before and after it."""
    ranges: str
    """See `encode_ranges`."""

    @cached_property
    def topics(self) -> list[TopicRanges]:
        """The ranges by source and topic. Raises StoreError where they cannot be decoded."""
        try:
            return _decode(self.ranges)
        except NOT_JSON as error:
            raise StoreError(
                f"the stored ranges of query {self.query_id}, batch {self.batch_id}, are broken:"
                f" {error}"
            ) from error

    def end_offsets(self) -> dict[tuple[int, str], dict[int, int]]:
        """The next offset of each partition, by source and topic."""
        return {(topic.source, topic.topic): topic.end_offsets() for topic in self.topics}


class RecordedQuery(NamedTuple):
    """A query that has records."""

    query_id: str
    query: str | None
    first_at: int
    """When the oldest recorded batch completed, epoch milliseconds."""
    last_at: int


class Retention(NamedTuple):
    """The records to delete, never the last of a query."""

    before_ms: int | None = None
    """Records that completed earlier, epoch milliseconds. None: no limit."""
    keep_batches: int | None = None
    """The number of records that each query keeps. None: no limit."""


class OffsetStore(Protocol):
    """Every method but `aclose` raises StoreError. After an error the next call reconnects."""

    shown: str
    """The URL without credentials."""

    async def prepare(self) -> None:
        """Create the tables, or migrate older ones. Concurrent calls are safe."""

    async def newest(self, query_ids: Collection[str]) -> dict[str, BatchRecord]:
        """The last record of each query that has one."""

    async def write(self, records: Sequence[BatchRecord]) -> None:
        """Write all records, or, after an error, the first of them. Keeps existing records."""

    async def as_of(self, query_id: str, at_ms: int | None) -> BatchRecord | None:
        """The last record that completed at or before `at_ms`; None: the last of all."""

    async def queries(self, name_or_id: str | None = None) -> list[RecordedQuery]:
        """The query with that id, or the queries with that name; None: all. By name, then id."""

    async def prune(self, retention: Retention) -> int:
        """Delete old records; returns their number."""

    async def aclose(self) -> None:
        """Disconnect; bounded in time. An error of the database is suppressed."""


def unusable_url(url: str, error: Exception, form: str) -> UnusableStore:
    """The error for a URL that a driver refuses; `form`: the form of a valid URL."""
    # The driver's text may quote a password in the URL.
    reason = "" if "@" in url or "?" in url else f": {error}"
    return UnusableStore(
        f"the offset store's URL {shown_url(url)} cannot be used{reason}; it takes {form}"
    )

"""Messages between their read and the commit of their offsets."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Final

from aiokafka.structs import ConsumerRecord

_MAX_IN_FLIGHT: Final = 100
"""Messages of new queries that are processed at the same time."""
_MAX_BYTES: Final = 16 * 1024 * 1024
"""Bytes of waiting messages, above which further messages stay in Kafka."""
_RECORD_BYTES: Final = 1_024
"""Memory of a record besides its contents."""


class CommitLedger:
    """The offsets of a partition: read in order, done in any order."""

    def __init__(self) -> None:
        self._open: deque[int] = deque()
        self._done: set[int] = set()
        self._next: int | None = None
        self.committed: int | None = None

    def take(self, offset: int) -> None:
        """Add an offset that was read; it is larger than all before it."""
        self._open.append(offset)

    def done(self, offset: int) -> None:
        """Allow the commit of an offset, once all before it are done."""
        self._done.add(offset)
        while self._open and self._open[0] in self._done:
            self._next = self._open.popleft() + 1
            self._done.remove(self._next - 1)

    @property
    def to_commit(self) -> int | None:
        """The offset to commit (exclusive end). None: already committed."""
        return self._next if self._next != self.committed else None


class UntrackedMessages:
    """Messages of queries that are not tracked yet, in order. They wait for messages of tracked
    queries: anybody can invent any number of queries."""

    def __init__(self) -> None:
        self._waiting: deque[ConsumerRecord] = deque()
        self._by_key: Counter[bytes | None] = Counter()
        self._bytes = 0
        self._in_flight: set[tuple[int, int]] = set()
        """Partition and offset."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, key: bytes | None) -> bool:
        return key in self._by_key

    @property
    def is_full(self) -> bool:
        """True while no further messages should be read."""
        return self._bytes >= _MAX_BYTES

    def add(self, record: ConsumerRecord) -> None:
        self._waiting.append(record)
        self._by_key[record.key] += 1
        self._bytes += _size(record)

    def next(self, limit: int) -> Iterator[ConsumerRecord]:
        """Remove the messages to process now, at most `limit`."""
        for _ in range(min(limit, _MAX_IN_FLIGHT - len(self._in_flight), len(self._waiting))):
            record = self._waiting.popleft()
            self._bytes -= _size(record)
            self._by_key[record.key] -= 1
            if not self._by_key[record.key]:
                del self._by_key[record.key]
            self._in_flight.add((record.partition, record.offset))
            yield record

    def done(self, record: ConsumerRecord) -> None:
        """Make room for another message in flight."""
        self._in_flight.discard((record.partition, record.offset))


def _size(record: ConsumerRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return _RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers

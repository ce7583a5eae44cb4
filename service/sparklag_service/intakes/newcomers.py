"""Messages of queries that are not tracked yet: any number can be invented, so they wait."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Final

from aiokafka.structs import ConsumerRecord

_AT_ONCE: Final = 100
"""More are not on their way together."""
_MAX_BYTES: Final = 16 * 1024 * 1024
"""With more waiting, the rest stays in Kafka."""
_RECORD_BYTES: Final = 1_024
"""What a record takes besides its contents."""


class Newcomers:
    """They stay in order; what is known goes before them."""

    def __init__(self) -> None:
        self._waiting: deque[ConsumerRecord] = deque()
        self._by_key: Counter[bytes | None] = Counter()
        self._bytes = 0
        self._on_their_way: set[tuple[int, int]] = set()
        """Partition and offset."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, key: bytes | None) -> bool:
        return key in self._by_key

    @property
    def is_full(self) -> bool:
        """Nothing more is to be read."""
        return self._bytes >= _MAX_BYTES

    def add(self, record: ConsumerRecord) -> None:
        """It waits."""
        self._waiting.append(record)
        self._by_key[record.key] += 1
        self._bytes += _size(record)

    def next(self, limit: int) -> Iterator[ConsumerRecord]:
        """Those that are to be taken now, at most `limit`."""
        for _ in range(min(limit, _AT_ONCE - len(self._on_their_way), len(self._waiting))):
            record = self._waiting.popleft()
            self._bytes -= _size(record)
            self._by_key[record.key] -= 1
            if not self._by_key[record.key]:
                del self._by_key[record.key]
            self._on_their_way.add((record.partition, record.offset))
            yield record

    def done(self, record: ConsumerRecord) -> None:
        """It has its event, or needs none."""
        self._on_their_way.discard((record.partition, record.offset))


def _size(record: ConsumerRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return _RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers

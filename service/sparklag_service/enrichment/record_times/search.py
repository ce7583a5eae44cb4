"""One partition's way to the time of the first record from a position on. Pure."""

from __future__ import annotations

from typing import Final, Literal

from aiokafka.errors import (
    NoError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.structs import TopicPartition

from sparklag_kafka.protocol.fetch import Fetched, Place
from sparklag_kafka.protocol.record_batch import RecordsUnreadable, first_record_time
from sparklag_schemas import IsolationLevel

FIRST_BYTES: Final = 1_024
"""Asked for where nothing is known of a topic's batches."""
MOST_BYTES: Final = 1024 * 1024
_LARGER: Final = 4
_MOST_STEPS: Final = 12
"""From the first bytes to the most it takes five; the others are for what no reader gets."""

Ending = Literal["found", "nothing", "out of range", "forbidden", "unusable", "failed", "replaced"]


class Search:
    """Until it has an `ending`, `place` says what to ask the leader for next."""

    __slots__ = (
        "_offset",
        "_size",
        "_steps",
        "batch_bytes",
        "ending",
        "level",
        "partition",
        "position",
        "reason",
        "timestamp_ms",
        "topic_id",
    )

    def __init__(
        self,
        partition: TopicPartition,
        level: IsolationLevel,
        position: int,
        size: int,
        topic_id: str | None = None,
    ) -> None:
        """`size`: bytes in which the topic's batches usually fit."""
        self.topic_id = topic_id
        self.partition = partition
        self.level = level
        self.position = position
        self.ending: Ending | None = None
        self.timestamp_ms = -1
        """Epoch milliseconds, where it was found."""
        self.reason = ""
        """Why it was not."""
        self.batch_bytes: int | None = None
        """How large the first batch was, once one was seen."""
        self._offset = position
        self._size = min(max(size, 1), MOST_BYTES)
        self._steps = 0

    @property
    def place(self) -> Place:
        return self.partition.partition, self._offset, self._size

    def take(self, fetched: Fetched) -> None:
        """What the leader gave for `place`."""
        self._steps += 1
        error = for_code(fetched.error_code)
        if error is not NoError:
            self._end(_ENDINGS.get(error, "failed"), f"the leader answers {error.__name__}")
            return
        try:
            seen = first_record_time(fetched.records, self.position, fetched.aborted)
        except RecordsUnreadable as unreadable:
            self._end("unusable", str(unreadable))
            return
        self.batch_bytes = self.batch_bytes or seen.first_bytes
        if seen.timestamp_ms is not None:
            self.timestamp_ms = seen.timestamp_ms
            if seen.timestamp_ms < 0:
                self._end("unusable", "the record has no time")
            else:
                self._end("found", "")
        elif seen.next_offset >= fetched.ends_at(self.level):
            self._end("nothing", "there is no record yet")
        elif self._steps == _MOST_STEPS:
            self._end("unusable", f"no record up to offset {seen.next_offset}")
        else:
            self._go_on(seen.next_offset, seen.next_bytes)

    def fail(self, reason: str) -> None:
        """The leader gave no answer."""
        self._end("failed", reason)

    def give_way(self) -> None:
        """Another position of the partition is wanted now."""
        self._end("replaced", "another position is wanted")

    def _go_on(self, offset: int, batch_bytes: int | None) -> None:
        if offset == self._offset and self._size == MOST_BYTES:
            self._end("unusable", f"a batch of more than {MOST_BYTES} bytes")
            return
        self._offset = offset
        self._size = min(MOST_BYTES, max(_LARGER * self._size, batch_bytes or 0))

    def _end(self, ending: Ending, reason: str) -> None:
        self.ending = ending
        self.reason = reason


_ENDINGS: Final[dict[type[Exception], Ending]] = {
    OffsetOutOfRangeError: "out of range",
    TopicAuthorizationFailedError: "forbidden",
}

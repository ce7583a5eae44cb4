"""The last frames of the live stream, bounded in bytes. Pure.

Every reader reads from here, each at its own position, so that no reader has a queue of its own: a
reader that falls behind the ring is too slow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sparklag_service.live.sse import NOTHING_SEEN, format_id

_OVERHEAD_BYTES = 400
"""What Python takes for a frame beside its bytes, about."""


class Frame(NamedTuple):
    """An event as it is written to readers."""

    query_id: str
    partition: int
    offset: int
    body: bytes
    is_last: bool
    """A tombstone's."""
    id_of_all: bytes
    """The id of a reader of all queries that has read everything up to it."""

    @property
    def id_of_query(self) -> bytes:
        """The id of a reader of this query alone."""
        return f"{self.partition}:{self.offset}".encode()

    @property
    def held_bytes(self) -> int:
        """Of memory."""
        return len(self.body) + len(self.id_of_all) + _OVERHEAD_BYTES


class Ring:
    """Frames by number, which only rises; and where in the topic they were."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._frames: deque[Frame] = deque()
        self._numbers_of_query: dict[str, deque[int]] = {}
        self._partitions: dict[int, _PartitionFrames] = {}
        self._last_lost: dict[str, int] = {}
        self.first = 0
        """Number of the oldest frame."""
        self.held_bytes = 0

    @property
    def end(self) -> int:
        """Number of the next frame."""
        return self.first + len(self._frames)

    @property
    def offsets(self) -> dict[int, int]:
        """How far the topic was read: partition, last offset."""
        return {number: partition.last for number, partition in self._partitions.items()}

    def begin(self, restarted: Mapping[int, int]) -> None:
        """Reading of these partitions starts over: no reader can resume from before."""
        for partition, start in restarted.items():
            self._partitions[partition] = _PartitionFrames(start - 1)

    def put(
        self, query_id: str, partition: int, offset: int, body: bytes, *, is_last: bool
    ) -> None:
        """Take a frame in."""
        of_partition = self._partitions.setdefault(partition, _PartitionFrames(offset - 1))
        of_partition.add(offset, self.end)
        frame = Frame(query_id, partition, offset, body, is_last, format_id(self.offsets))
        self._numbers_of_query.setdefault(query_id, deque()).append(self.end)
        self._frames.append(frame)
        self.held_bytes += frame.held_bytes
        # The newest stays, however large it is: somebody is about to read it.
        while self.held_bytes > self._max_bytes and len(self._frames) > 1:
            self._drop_oldest()

    def reaches(self, since: Mapping[int, int], partition: int | None) -> bool:
        """Whether every frame after those offsets is still here; of one partition, or of all."""
        return all(
            of_partition.complete_after <= since.get(number, NOTHING_SEEN) <= of_partition.last
            for number, of_partition in self._partitions.items()
            if partition in (None, number)
        )

    def number_after(self, since: Mapping[int, int]) -> int:
        """Number of the first frame after those offsets."""
        numbers = [
            number
            for partition, of_partition in self._partitions.items()
            if (number := of_partition.number_after(since.get(partition, NOTHING_SEEN))) is not None
        ]
        return min(numbers, default=self.end)

    def lacks(self, number: int, query_id: str | None) -> bool:
        """Whether a frame (of that query) from this number on is here no more."""
        if query_id is None:
            return number < self.first
        return number <= self._last_lost.get(query_id, -1)

    def frames(self, number: int, query_id: str | None) -> Iterator[tuple[int, Frame]]:
        """From that number on, of one query or of all; with the number of each."""
        if query_id is None:
            for at in range(max(number, self.first), self.end):
                yield at, self._frames[at - self.first]
            return
        numbers = self._numbers_of_query.get(query_id, ())
        # Most readers want the last one.
        begin = len(numbers)
        while begin and numbers[begin - 1] >= number:
            begin -= 1
        for index in range(begin, len(numbers)):
            yield numbers[index], self._frames[numbers[index] - self.first]

    def _drop_oldest(self) -> None:
        frame = self._frames.popleft()
        self.held_bytes -= frame.held_bytes
        self._partitions[frame.partition].drop(self.first, frame.offset)
        numbers = self._numbers_of_query[frame.query_id]
        numbers.popleft()
        self._last_lost[frame.query_id] = self.first
        if not numbers:
            del self._numbers_of_query[frame.query_id]
            if frame.is_last:
                # Its readers have ended with it.
                del self._last_lost[frame.query_id]
        self.first += 1


class _PartitionFrames:
    """Where the frames of one partition are."""

    def __init__(self, start: int) -> None:
        self.complete_after = start
        """Every frame after this offset is here."""
        self.last = start
        self._offsets: deque[int] = deque()
        self._numbers: deque[int] = deque()

    def add(self, offset: int, number: int) -> None:
        self.last = offset
        self._offsets.append(offset)
        self._numbers.append(number)

    def drop(self, number: int, offset: int) -> None:
        # It may be of a topic that was there before.
        if self._numbers and self._numbers[0] == number:
            self._numbers.popleft()
            self._offsets.popleft()
            self.complete_after = offset

    def number_after(self, offset: int) -> int | None:
        at = bisect_right(self._offsets, offset)
        return self._numbers[at] if at < len(self._numbers) else None

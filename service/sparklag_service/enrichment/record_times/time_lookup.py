"""Where logs ended at earlier times: asked of their leaders once, for what lags since before anyone
looked. It needs no right but to describe the topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from sparklag_kafka.brokers.connection import BrokerConnection
from sparklag_kafka.protocol.list_offsets import OffsetsAtRequest, read_offsets
from sparklag_schemas import IsolationLevel
from sparklag_schemas.runtime.chunks import by_count
from sparklag_service.enrichment.log_end_history import SPACING

_LONGEST_S: Final = 86_400
_SLICE: Final = 1_000
"""Partitions in one request."""


def _ages_s() -> Iterator[int]:
    age_s = 1
    while age_s < _LONGEST_S:
        yield age_s
        # As near to each other as rows that are taken: see LogEndHistory.
        age_s = max(age_s + 1, int(age_s * (1 + SPACING)))
    yield _LONGEST_S


AGES_S: Final = tuple(_ages_s())
"""At which it is asked; two of them are a second apart, or 5 % of the age."""


Place = tuple[str, int]
"""Topic and partition."""


class Behind(NamedTuple):
    """A partition that lags: its next offset to read, and its latest offset."""

    topic: str
    partition: int
    position: int
    latest: int


Ends = dict[int, dict[str, dict[int, int]]]
"""By age, topic and partition: where the log ended so long ago. Of each partition the two ages
between which the record at its position came."""


class _Halving:
    """Finds those two."""

    __slots__ = ("behind", "found", "high", "low")

    def __init__(self, behind: Behind) -> None:
        self.behind = behind
        self.low = 0
        self.high = len(AGES_S)
        self.found: dict[int, int] = {}

    @property
    def is_done(self) -> bool:
        return self.low == self.high

    @property
    def age_s(self) -> int:
        """Which one to ask for next."""
        return AGES_S[self._middle]

    def take(self, end: int) -> None:
        # Nothing is as new as that: so long ago the log ended where it ends now.
        index, latest = self._middle, self.behind.latest
        end = self.found[index] = latest if end < 0 else min(end, latest)
        if end <= self.behind.position:
            self.high = index
        else:
            self.low = index + 1

    @property
    def _middle(self) -> int:
        return (self.low + self.high) // 2

    def ends(self) -> Iterator[tuple[int, int]]:
        """Ages, and where the log ended then."""
        for index in (self.low - 1, self.low):
            if index in self.found:
                yield AGES_S[index], self.found[index]


async def look_up(
    connection: BrokerConnection, level: IsolationLevel, wanted: Iterable[Behind], now_ms: int
) -> Ends:
    """Ask one leader about its partitions. Raises one of KAFKA_FAILURES.

    A partition of which it does not know is left out.
    """
    searches = {(one.topic, one.partition): _Halving(one) for one in wanted}
    while going := {place: one for place, one in searches.items() if not one.is_done}:
        times_ms = {place: now_ms - one.age_s * 1_000 for place, one in going.items()}
        answered = await _ends_at(connection, level, times_ms)
        for place, search in going.items():
            if place in answered:
                search.take(answered[place])
            else:
                del searches[place]
    ends: Ends = {}
    for (topic, number), search in searches.items():
        for age_s, end in search.ends():
            ends.setdefault(age_s, {}).setdefault(topic, {})[number] = end
    return ends


async def _ends_at(
    connection: BrokerConnection, level: IsolationLevel, times_ms: Mapping[Place, int]
) -> dict[Place, int]:
    """The first offset with that time or a later one; -1 where there is none."""
    found = {}
    for some in by_count(times_ms.items(), _SLICE):
        times: dict[str, dict[int, int]] = {}
        for (topic, number), at_ms in some:
            times.setdefault(topic, {})[number] = at_ms
        answer: bytes = await connection.send(OffsetsAtRequest(level, times))
        for topic, answered in read_offsets(answer):
            for number, error_code, _, offset in answered:
                if error_code == 0:
                    found[topic, number] = offset
    return found

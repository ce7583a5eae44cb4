"""Where logs ended at earlier times: asked of their leaders once, for what lags since before anyone
looked. It needs no right but to describe the topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from sparklag_schemas import IsolationLevel
from sparklag_service.brokers.broker_link import BrokerLink
from sparklag_service.log_offsets.offset_requests import (
    OffsetsRequest,
    TopicPart,
    read_offsets,
    slices,
)

AGES_S: Final = (60, 300, 900, 3_600, 10_800, 21_600, 43_200, 86_400)
_SLICE: Final = 1_000
"""Partitions in one request."""


class Behind(NamedTuple):
    """A partition that lags: its next offset to read, and its latest offset."""

    topic: str
    partition: int
    position: int
    latest: int


Ends = dict[int, dict[str, dict[int, int]]]
"""By age, topic and partition: where the log ended so long ago, as far as it was asked for."""


class _Halving:
    """Finds between which two ages the record at a partition's position came."""

    __slots__ = ("behind", "high", "low")

    def __init__(self, behind: Behind) -> None:
        self.behind = behind
        self.low = 0
        self.high = len(AGES_S)

    @property
    def middle(self) -> int | None:
        """Which age to ask for next; None: it is found."""
        return None if self.low == self.high else (self.low + self.high) // 2

    def take(self, index: int, end: int) -> None:
        if end <= self.behind.position:
            self.high = index
        else:
            self.low = index + 1


async def look_up(
    link: BrokerLink, level: IsolationLevel, wanted: Iterable[Behind], now_ms: int
) -> Ends:
    """Ask one leader about its partitions. Raises one of BROKER_FAILURES.

    A partition of which it does not know is left out.
    """
    searches = {(one.topic, one.partition): _Halving(one) for one in wanted}
    ends: Ends = {}
    while True:
        by_age: dict[int, dict[str, list[int]]] = {}
        for (topic, number), search in searches.items():
            index = search.middle
            if index is not None:
                by_age.setdefault(index, {}).setdefault(topic, []).append(number)
        if not by_age:
            return ends
        for index, numbers in by_age.items():
            answered = await _ends_at(link, level, numbers, now_ms - AGES_S[index] * 1_000)
            for topic, some in numbers.items():
                for number in some:
                    search = searches[topic, number]
                    end = answered.get((topic, number))
                    if end is None:
                        del searches[topic, number]
                        continue
                    # Nothing is as new as that: so long ago the log ended where it ends now.
                    end = search.behind.latest if end < 0 else min(end, search.behind.latest)
                    search.take(index, end)
                    ends.setdefault(AGES_S[index], {}).setdefault(topic, {})[number] = end


async def _ends_at(
    link: BrokerLink, level: IsolationLevel, numbers: Mapping[str, list[int]], at_ms: int
) -> dict[tuple[str, int], int]:
    """The first offset with a time of `at_ms` or later, by partition; -1 where there is none."""
    found = {}
    parts = (TopicPart(topic, tuple(some)) for topic, some in numbers.items())
    for some_parts in slices(parts, _SLICE):
        answer: bytes = await link.ask(OffsetsRequest(level, some_parts, at_ms))
        for topic, answered in read_offsets(answer):
            for number, error_code, _, offset in answered:
                if error_code == 0:
                    found[topic, number] = offset
    return found

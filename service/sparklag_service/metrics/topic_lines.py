"""The lines of a topic's partitions: they differ in one label. What does not change is kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from sparklag_schemas import PartitionLag, TopicLag
from sparklag_service.metrics.family import Gauge, Number
from sparklag_service.metrics.turns import Turns

_PARTITIONS_AT_ONCE = 2_000

_number = attrgetter("partition")


class PartitionLines:
    """Of many topics. What is kept of a topic goes with the topic."""

    def __init__(self, families: Sequence[Gauge[PartitionLag]], end: str = "") -> None:
        """`end`: label pairs after the partition's, with a comma first."""
        self._families = families
        self._end = end
        self._topics: dict[str, TopicLines] = {}

    async def blocks(
        self, topics: Iterable[tuple[str, TopicLag]], turns: Turns
    ) -> list[list[bytes]]:
        """The lines of each family, in parts, of topics with their label pairs."""
        found: list[list[bytes]] = [[] for _ in self._families]
        kept: dict[str, TopicLines] = {}
        for labels, topic in topics:
            lines = kept[labels] = self._topics.get(labels) or TopicLines(labels, self._end)
            of_topic = await lines.blocks(self._families, topic.partitions, turns)
            for of_family, more in zip(found, of_topic, strict=True):
                of_family += more
        self._topics = kept
        return found


class TopicLines:
    """Of one topic, however many partitions it has."""

    def __init__(self, labels: str, end: str) -> None:
        """Label pairs before the partition's, and after it."""
        self._labels, self._end = labels, end
        self._parts: list[_PartitionLines] = []

    async def blocks(
        self,
        families: Sequence[Gauge[PartitionLag]],
        partitions: Sequence[PartitionLag],
        turns: Turns,
    ) -> list[list[bytes]]:
        """The lines of each family, in parts."""
        found: list[list[bytes]] = [[] for _ in families]
        starts = range(0, len(partitions), _PARTITIONS_AT_ONCE)
        while len(self._parts) < len(starts):
            self._parts.append(_PartitionLines(self._labels, self._end))
        for lines, start in zip(self._parts, starts, strict=False):
            part = partitions[start : start + _PARTITIONS_AT_ONCE]
            # In one turn: another scrape may render other partitions in the next.
            for blocks, block in zip(found, lines.blocks(families, part), strict=True):
                blocks.append(block)
            await turns.rest()
        return found


class _PartitionLines:
    """Not so many of them that the loop is held for long."""

    def __init__(self, labels: str, end: str) -> None:
        self._begin = f'{{{labels},partition="'
        self._end = f'"{end}}} '
        self._numbers: list[int] = []
        self._templates: dict[str, bytes] = {}

    def blocks(
        self, families: Sequence[Gauge[PartitionLag]], partitions: Sequence[PartitionLag]
    ) -> list[bytes]:
        """The lines of each family: one for each value that is not null."""
        numbers = list(map(_number, partitions))
        if numbers != self._numbers:
            self._numbers = numbers
            self._templates.clear()
        return [self._text(family, tuple(map(family.read, partitions))) for family in families]

    def _text(self, family: Gauge[PartitionLag], values: tuple[Number | None, ...]) -> bytes:
        template = self._templates.get(family.name)
        if template is not None:
            try:
                # One call in C for all of them: this is most of what a scrape costs.
                return template % values
            except TypeError:
                # Some are null by now.
                pass
        if values.count(None) == len(values):
            return b""
        pairs = zip(self._numbers, values, strict=True)
        numbers = [number for number, value in pairs if value is not None]
        template = self._template(family, numbers)
        if len(numbers) == len(values):
            self._templates[family.name] = template
        return template % tuple([value for value in values if value is not None])

    def _template(self, family: Gauge[PartitionLag], numbers: Sequence[int]) -> bytes:
        begin = f"\n{family.name}{self._begin}".replace("%", "%%")
        end = f"{self._end.replace('%', '%%')}{family.form}"
        return "".join([f"{begin}{number}{end}" for number in numbers]).encode()

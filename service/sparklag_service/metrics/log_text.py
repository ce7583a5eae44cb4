"""Series of a topic's log: of each topic once, however many queries read it."""

from __future__ import annotations

from collections.abc import Sequence

from sparklag_service.metrics.family import Family
from sparklag_service.metrics.scheme import Named, Scheme, logs_of
from sparklag_service.metrics.selection import Selection
from sparklag_service.metrics.topic_lines import PartitionLines
from sparklag_service.metrics.turns import Turns


class LogText:
    """The logs of all topics that are shown, in one scheme."""

    def __init__(self, scheme: Scheme, selection: Selection) -> None:
        self._scheme = scheme
        self._selection = selection
        self._topic = scheme.log_topic if selection.topics else ()
        self._partition = scheme.log_partition if selection.partitions else ()
        self._lines = PartitionLines(self._partition)

    async def render(
        self, shown: Sequence[Named], turns: Turns
    ) -> list[tuple[Family, Sequence[bytes]]]:
        """Each family with its blocks."""
        if not self._topic and not self._partition:
            return []
        logs = [
            (labels, log)
            for cluster, log in logs_of((n.event for n in shown), self._selection.takes_topic)
            if (labels := self._scheme.log_labels(cluster, log.topic)) is not None
        ]
        blocks = await self._lines.blocks(logs, turns)
        of_topics = [(f"{{{labels}}}", log) for labels, log in logs]
        found: list[tuple[Family, Sequence[bytes]]] = [
            (family, [family.block(of_topics)]) for family in self._topic
        ]
        return found + list(zip(self._partition, blocks, strict=True))

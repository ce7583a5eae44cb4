"""Series of a topic's log: of each topic once, however many queries read it."""

from __future__ import annotations

from collections.abc import Sequence

from sparklag_service.metrics.family import Family
from sparklag_service.metrics.scheme import Named, Scheme, logs_of
from sparklag_service.metrics.selection import Selection
from sparklag_service.metrics.topic_lines import TopicLines
from sparklag_service.metrics.turns import Turns


class LogText:
    """The logs of all topics that are shown, in one scheme."""

    def __init__(self, scheme: Scheme, selection: Selection) -> None:
        self._scheme = scheme
        self._selection = selection
        self._topic = scheme.log_topic if selection.topics else ()
        self._partition = scheme.log_partition if selection.partitions else ()
        self._lines: dict[str, TopicLines] = {}

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
        blocks: list[list[bytes]] = [[] for _ in self._partition]
        lines: dict[str, TopicLines] = {}
        for labels, log in logs:
            lines[labels] = self._lines.get(labels) or TopicLines(labels)
            of_log = await lines[labels].blocks(self._partition, log.partitions, turns)
            for of_family, more in zip(blocks, of_log, strict=True):
                of_family += more
        # What is kept of a topic goes with the topic.
        self._lines = lines
        of_topics = [(f"{{{labels}}}", log) for labels, log in logs]
        found: list[tuple[Family, Sequence[bytes]]] = [
            (family, [family.block(of_topics)]) for family in self._topic
        ]
        return found + list(zip(self._partition, blocks, strict=True))

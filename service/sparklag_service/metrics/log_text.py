"""Series of a topic's log: of each topic once, however many queries read it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparklag_schemas import LagEvent, TopicLag
from sparklag_service.metrics.family import Family
from sparklag_service.metrics.scheme import Named, Scheme, newest_log
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
        logs = self._logs(named.event for named in shown)
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

    def _logs(self, events: Iterable[LagEvent]) -> list[tuple[str, TopicLag]]:
        """Label pairs and log of each topic."""
        readers: dict[tuple[str, str], list[tuple[LagEvent, TopicLag]]] = {}
        for event in events:
            for topic in event.topics:
                # Of a cluster that is not configured nothing is known.
                if topic.cluster is not None and self._selection.takes_topic(topic.topic):
                    key = (topic.cluster, topic.topic)
                    readers.setdefault(key, []).append((event, topic))
        labelled = ((self._scheme.log_labels(*key), known) for key, known in readers.items())
        return [(labels, newest_log(known)) for labels, known in labelled if labels is not None]

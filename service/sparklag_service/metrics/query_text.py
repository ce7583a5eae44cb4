"""One query as text. Its partitions' lines are kept, and made again where its event has changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sparklag_schemas import LagEvent, TopicLag
from sparklag_service.metrics.scheme import Named, Scheme
from sparklag_service.metrics.selection import Selection
from sparklag_service.metrics.topic_lines import PartitionLines
from sparklag_service.metrics.turns import Turns


class Rendered(NamedTuple):
    """A query in one scheme."""

    named: Named
    labels: str
    """The query's, with braces."""
    topics: Sequence[tuple[str, TopicLag]]
    """Those that are shown, each with its labels, with braces."""
    partitions: Sequence[Sequence[bytes]]
    """Their blocks, by the scheme's families."""

    @property
    def event(self) -> LagEvent:
        """What it was rendered from."""
        return self.named.event


class _Kept(NamedTuple):
    # Not the event: it would stay until the next scrape, beside the one that replaced it.
    event_id: str
    group: str
    blocks: Sequence[Sequence[bytes]]


class QueryText:
    """One query in one scheme. Two scrapes may render at once: what is kept is replaced whole."""

    def __init__(self, scheme: Scheme, selection: Selection) -> None:
        self._scheme = scheme
        self._selection = selection
        self._kept: _Kept | None = None
        self._lines = PartitionLines(scheme.partition, scheme.partition_end)

    async def render(self, named: Named, turns: Turns) -> Rendered:
        """As of that event."""
        labels = self._scheme.query_labels(named)
        topics = self._topics(named) if self._selection.topics else []
        shown = [(f"{{{pairs}}}", topic) for pairs, topic in topics]
        blocks: Sequence[Sequence[bytes]] = ()
        if self._selection.partitions:
            event_id, kept = named.event.event_id, self._kept
            if kept is None or kept[:2] != (event_id, named.group):
                kept = _Kept(event_id, named.group, await self._lines.blocks(topics, turns))
                self._kept = kept
            blocks = kept.blocks
        return Rendered(named, labels, shown, blocks)

    def _topics(self, named: Named) -> list[tuple[str, TopicLag]]:
        return [
            (pairs, topic)
            for pairs, topic in self._scheme.topics(named)
            if self._selection.takes_topic(topic.topic)
        ]

"""Which queries and topics `[metrics]` shows, and how finely."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache

from sparklag_schemas import LagEvent
from sparklag_schemas.name_patterns import NamePatterns
from sparklag_schemas.settings import MetricsSettings
from sparklag_service.metrics.scheme import Named, group_names

_REMEMBERED = 16_384


class Selection:
    """Patterns are of whole names or ids. What is excluded is not shown, included or not."""

    def __init__(self, settings: MetricsSettings) -> None:
        self._take_names = lru_cache(_REMEMBERED)(
            NamePatterns(settings.include, settings.exclude).take
        )
        self._take_topic = lru_cache(_REMEMBERED)(
            NamePatterns(settings.include_topics, settings.exclude_topics).take
        )
        self.topics = settings.granularity != "query"
        self.partitions = settings.granularity == "partition"

    def shown(self, events: Sequence[LagEvent], measured: Collection[str] | None) -> list[Named]:
        """The queries to show. `events`: the newest of every one. `measured`: ids of those that
        come into question; None: all."""
        return [
            named
            for named in group_names(events)
            if (measured is None or named.event.query_id in measured)
            and self._take_names(named.event.query, named.event.query_id)
        ]

    def takes_topic(self, topic: str) -> bool:
        """Whether a topic of that name is shown."""
        return self._take_topic(topic)

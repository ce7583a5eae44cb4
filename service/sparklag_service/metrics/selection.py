"""Which queries and topics `[metrics]` shows, and how finely."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

from sparklag_schemas import LagEvent
from sparklag_schemas.settings import MetricsSettings
from sparklag_service.metrics.scheme import Named, group_names

_REMEMBERED = 16_384


class Selection:
    """Patterns are of whole names or ids. What is excluded is not shown, included or not."""

    def __init__(self, settings: MetricsSettings) -> None:
        self._take_names = lru_cache(_REMEMBERED)(
            _Patterns(settings.include, settings.exclude).take
        )
        self._take_topic = lru_cache(_REMEMBERED)(
            _Patterns(settings.include_topics, settings.exclude_topics).take
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


class _Patterns:
    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        self._include = [re.compile(pattern) for pattern in include]
        self._exclude = [re.compile(pattern) for pattern in exclude]

    def take(self, *names: str | None) -> bool:
        known = [name for name in names if name is not None]
        if self._include and not _any_fits(self._include, known):
            return False
        return not _any_fits(self._exclude, known)


def _any_fits(patterns: Iterable[re.Pattern[str]], names: Sequence[str]) -> bool:
    return any(pattern.fullmatch(name) for pattern in patterns for name in names)

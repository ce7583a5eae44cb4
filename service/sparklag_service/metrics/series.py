"""The series of every query that is shown, as text."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from sparklag_schemas import LagEvent, Settings
from sparklag_service.metrics.kafka_exporter import kafka_exporter
from sparklag_service.metrics.lag_exporter import LAG_EXPORTER
from sparklag_service.metrics.native import AGES, NATIVE, query_set
from sparklag_service.metrics.scheme import Scheme
from sparklag_service.metrics.scheme_text import Blocks, SchemeText
from sparklag_service.metrics.selection import Selection
from sparklag_service.metrics.turns import Turns


class QuerySeries:
    """sparklag's own, and those of the tools that it stands in for."""

    def __init__(self, settings: Settings) -> None:
        self._selection = Selection(settings.metrics)
        self._schemes = [SchemeText(scheme, self._selection) for scheme in _schemes(settings)]

    async def render(
        self, events: Sequence[LagEvent], measured: Collection[str] | None, now_ms: int
    ) -> list[Blocks]:
        """Each family with its blocks, of one moment: what comes meanwhile is not in it.

        `events`: the newest of every query. `measured`: ids of those to show; None: all.
        """
        turns = Turns()
        shown = self._selection.shown(events, measured)
        of_queries = [(query_set(named.event), named.event) for named in shown]
        found: list[Blocks] = [(age, [age.block(of_queries, now_ms)]) for age in AGES]
        for scheme in self._schemes:
            await turns.rest()
            found += await scheme.render(shown, turns)
        return found


def _schemes(settings: Settings) -> Iterator[Scheme]:
    yield NATIVE
    if "kafka-lag-exporter" in settings.metrics.compat:
        yield LAG_EXPORTER
    if "kafka_exporter" in settings.metrics.compat:
        yield kafka_exporter(None if settings.clusters else settings.cluster)

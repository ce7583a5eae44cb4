"""All queries that are shown, in one scheme."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from sparklag_service.metrics.family import Family
from sparklag_service.metrics.log_text import LogText
from sparklag_service.metrics.query_text import QueryText, Rendered
from sparklag_service.metrics.scheme import Named, Scheme
from sparklag_service.metrics.selection import Selection
from sparklag_service.metrics.turns import Turns

Blocks = tuple[Family, Sequence[bytes]]


class SchemeText:
    """Rendered in turns; of queries that have not changed what is costly is kept."""

    def __init__(self, scheme: Scheme, selection: Selection) -> None:
        self._scheme = scheme
        self._selection = selection
        self._texts: dict[str, QueryText] = {}
        self._log = LogText(scheme, selection)

    async def render(self, shown: Sequence[Named], turns: Turns) -> list[Blocks]:
        """Each family with its blocks."""
        texts: dict[str, QueryText] = {}
        queries: list[Rendered] = []
        for named in shown:
            query_id = named.event.query_id
            text = self._texts.get(query_id) or QueryText(self._scheme, self._selection)
            texts[query_id] = text
            queries.append(await text.render(named, turns))
            await turns.rest()
        # What is kept of a query goes with the query.
        self._texts = texts
        found: list[Blocks] = []
        for family, blocks in self._levels(queries):
            found.append((family, blocks))
            await turns.rest()
        return found + await self._log.render(shown, turns)

    def _levels(self, queries: Sequence[Rendered]) -> Iterator[Blocks]:
        scheme = self._scheme
        for of_query in scheme.query:
            yield of_query, [of_query.block([(each.labels, each.event) for each in queries])]
        if self._selection.topics:
            for of_topic in scheme.topic:
                topics = chain.from_iterable(each.topics for each in queries)
                yield of_topic, [of_topic.block(topics)]
        if self._selection.partitions:
            for index, family in enumerate(scheme.partition):
                parts = (each.partitions[index] for each in queries)
                yield family, list(chain.from_iterable(parts))

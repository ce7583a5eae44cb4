"""What is observed of each source of a query: its offsets, with what the query says of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sparklag_listener.events.kafka_source import KafkaSource, QueryDescription
from sparklag_schemas import Offsets, SourcePosition

_NONE: Final[Mapping[int, KafkaSource]] = MappingProxyType({})


def positions(
    processed: Mapping[int, Offsets | None],
    began: Mapping[int, Offsets | None],
    description: QueryDescription,
    named: Mapping[int, KafkaSource] = _NONE,
) -> list[SourcePosition]:
    """By the number of each source; without offsets, what is described alone. `named`: what a
    progress says that it reads, for where there is no description."""
    if not processed:
        return [_position(source.index, None, None, source) for source in description.sources]
    # Spark may number the sources of a plan otherwise than they stand in it (a source that is
    # read twice), so they are told apart by their topics.
    left = list(description.sources)
    found = []
    for index, offsets in sorted(processed.items()):
        topics = set(offsets or ())
        source = next((source for source in left if source.reads(topics)), None)
        if source is not None:
            left.remove(source)
        elif len(description.sources) == 1:
            source = description.sources[0]
        else:
            source = next((s for s in description.sources if s.reads(topics)), None)
        if not description.sources:
            source = named.get(index)
        found.append(_position(index, offsets, began.get(index), source))
    return found


def _position(
    index: int, offsets: Offsets | None, began: Offsets | None, source: KafkaSource | None
) -> SourcePosition:
    if source is None:
        return SourcePosition(source=index, processed=offsets, began=began)
    return SourcePosition(
        source=index,
        processed=offsets,
        began=began,
        topics=list(source.topics) if source.topics is not None else None,
        topic_pattern=source.topic_pattern,
        bootstrap_servers=source.bootstrap_servers,
        isolation_level=source.isolation_level,
        assigned=source.assigned,
    )

"""A query's Kafka sources, from its options or its progress, and their positions. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from msgspec.structs import replace

from sparklag_schemas import Offsets, SourcePosition
from sparklag_schemas.messages.bounds import MAX_PARTITION, MAX_TEXT, MAX_TOPIC_NAME

_STRATEGY = re.compile(r"Kafka\w*\[(Subscribe|SubscribePattern|Assign)\[(.*)\]\]\s*", re.DOTALL)
_PARTITION = re.compile(r"(.+)-(\d{1,10})")


@dataclass(frozen=True)
class QueryDescription:
    """What a query reads, and where its checkpoint is."""

    sources: tuple[SourcePosition, ...] = ()
    """Its Kafka sources, without offsets."""
    checkpoint_location: str | None = None


def reads(source: SourcePosition, topics: set[str]) -> bool:
    """Whether all of `topics` can be this source's."""
    if source.topics is not None:
        return topics <= set(source.topics)
    if source.topic_pattern is None:
        return False
    try:
        # Spark takes a topic in which the pattern occurs anywhere.
        return all(re.search(source.topic_pattern, topic) for topic in topics)
    except re.error:
        # Valid in Java only: assume that it matches.
        return True


def matched_topics(source: SourcePosition, topics: Iterable[str]) -> list[str]:
    """Those of `topics` that this source's pattern matches. Java's own patterns match none."""
    try:
        pattern = re.compile(source.topic_pattern) if source.topic_pattern is not None else None
    except re.error:
        return []
    return [] if pattern is None else sorted(filter(pattern.search, topics))


def parse_source_description(index: int, description: str) -> SourcePosition | None:
    """The source in a progress' `description`, such as `KafkaV2[Subscribe[orders, returns]]`.

    None where it names no topics. Brokers and isolation level are not in it.
    """
    match = _STRATEGY.fullmatch(description)
    if match is None:
        return None
    strategy, value = match.groups()
    topics: list[str] | None = None
    assigned: dict[str, list[int]] | None = None
    if strategy == "Subscribe":
        topics = [topic for part in value.split(",") if (topic := part.strip())]
    elif strategy == "Assign":
        assigned = _parse_partitions(value)
        topics = list(assigned) if assigned is not None else None
    elif len(value) > MAX_TEXT:
        return None
    if any(len(topic) > MAX_TOPIC_NAME for topic in topics or ()):
        return None
    return SourcePosition(
        source=index,
        topics=topics,
        topic_pattern=value if strategy == "SubscribePattern" else None,
        assigned=assigned,
    )


def _parse_partitions(text: str) -> dict[str, list[int]] | None:
    """`orders-0, orders-1`, the format of Kafka's clients."""
    partitions: dict[str, list[int]] = {}
    for part in text.split(","):
        match = _PARTITION.fullmatch(part.strip())
        if match is None or (number := int(match.group(2))) > MAX_PARTITION:
            return None
        partitions.setdefault(match.group(1), []).append(number)
    return {topic: sorted(numbers) for topic, numbers in sorted(partitions.items())}


def source_positions(
    processed: Mapping[int, Offsets | None],
    began: Mapping[int, Offsets | None],
    description: QueryDescription,
    from_progress: Mapping[int, SourcePosition] = MappingProxyType({}),
) -> list[SourcePosition]:
    """By the number of each source; without offsets, the described sources alone. `from_progress`:
    sources parsed from a progress, used where there is no description."""
    if not processed:
        return list(description.sources)
    # Spark may number the sources otherwise than in the plan (where a source is read twice), so
    # they are matched by their topics.
    unmatched = list(description.sources)
    positions = []
    for index, offsets in sorted(processed.items()):
        topics = set(offsets or ())
        source = next((source for source in unmatched if reads(source, topics)), None)
        if source is not None:
            unmatched.remove(source)
        elif len(description.sources) == 1:
            source = description.sources[0]
        else:
            source = next((s for s in description.sources if reads(s, topics)), None)
        if not description.sources:
            source = from_progress.get(index)
        source = source or SourcePosition(source=index)
        positions.append(replace(source, source=index, processed=offsets, began=began.get(index)))
    return positions

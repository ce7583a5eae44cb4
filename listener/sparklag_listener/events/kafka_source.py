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
    """A query's Kafka sources, without offsets, and its checkpoint."""

    sources: tuple[SourcePosition, ...] = ()
    checkpoint_location: str | None = None


def reads(source: SourcePosition, topics: set[str]) -> bool:
    """Whether this source can be the one that reads all of `topics`."""
    if source.topics is not None:
        return topics <= set(source.topics)
    if source.topic_pattern is None:
        return False
    pattern = _compiled(source.topic_pattern)
    # A pattern that is valid in Java only is assumed to match.
    return pattern is None or all(map(pattern.search, topics))


def matched_topics(source: SourcePosition, topics: Iterable[str]) -> list[str]:
    """The topics that this source's pattern matches; none where it is valid in Java only."""
    pattern = _compiled(source.topic_pattern) if source.topic_pattern is not None else None
    return sorted(filter(pattern.search, topics)) if pattern is not None else []


def _compiled(topic_pattern: str) -> re.Pattern[str] | None:
    try:
        # Spark takes a topic in which the pattern occurs anywhere.
        return re.compile(topic_pattern)
    except re.error:
        return None


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
    """The positions in the order of the sources' numbers, which are the keys of all arguments.
    Without offsets: the described sources alone. `from_progress`: the sources parsed from a
    progress, used where there is no description."""
    if not processed:
        return list(description.sources)
    # Spark may number the sources otherwise than in the plan (where a source is read twice), so
    # they are matched by their topics.
    described, unmatched = description.sources, list(description.sources)
    positions = []
    for index, offsets in sorted(processed.items()):
        topics = set(offsets or ())
        source = next((each for each in unmatched if reads(each, topics)), None)
        if source is not None:
            unmatched.remove(source)
        elif len(described) == 1:
            source = described[0]
        elif described:
            source = next((each for each in described if reads(each, topics)), None)
        else:
            source = from_progress.get(index)
        source = source or SourcePosition(source=index)
        positions.append(replace(source, source=index, processed=offsets, began=began.get(index)))
    return positions

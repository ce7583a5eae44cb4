"""A query's Kafka sources, from its options or its progress, and their positions. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from sparklag_schemas import Offsets, SourcePosition
from sparklag_schemas.codec import NOT_JSON
from sparklag_schemas.messages.bounds import MAX_PARTITION, MAX_TEXT, MAX_TOPIC_NAME
from sparklag_schemas.messages.enumerations import Mode, StartingOffsets
from sparklag_schemas.text.java_patterns import python_pattern

_STRATEGY = re.compile(r"Kafka\w*\[(Subscribe|SubscribePattern|Assign)\[(.*)\]\]\s*", re.DOTALL)
_BY_TIMESTAMP = {"startingtimestamp", "startingoffsetsbytimestamp"}
_starting = msgspec.json.Decoder(StartingOffsets)
_UNKNOWN = SourcePosition(source=0)
WHOLE_NAMES = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
"""Spark's setting: if it is true, a pattern matches whole names of topics."""
_PARTITION = re.compile(r"(.+)-(\d{1,10})")


@dataclass(frozen=True)
class QueryDescription:
    """A query's Kafka sources, without processed offsets, its checkpoint, application and
    trigger."""

    sources: tuple[SourcePosition, ...] = ()
    checkpoint_location: str | None = None
    application: str | None = None
    spark_ui_url: str | None = None
    mode: Mode | None = None
    trigger_interval_s: float | None = None
    ends_by_itself: bool | None = None
    whole_names: bool = False
    """Without sources: whether the patterns of the positions match whole names of topics."""


def reads(source: SourcePosition, topics: set[str]) -> bool:
    """Returns whether this source can read all of `topics`."""
    if source.topics is not None:
        return topics <= set(source.topics)
    if source.topic_pattern is None:
        return False
    pattern = _compiled(source.topic_pattern)
    # A pattern that is not translated is assumed to match.
    return pattern is None or all(map(pattern.search, topics))


def matched_topics(source: SourcePosition, topics: Iterable[str]) -> list[str]:
    """The topics that this source's pattern matches; none if it is not translated."""
    pattern = _compiled(source.topic_pattern) if source.topic_pattern is not None else None
    return sorted(filter(pattern.search, topics)) if pattern is not None else []


@lru_cache(maxsize=256)
def _compiled(topic_pattern: str) -> re.Pattern[str] | None:
    try:
        # Spark subscribes to a topic if the pattern occurs anywhere in its name.
        return re.compile(python_pattern(topic_pattern))
    except (re.error, ValueError):
        return None


def with_whole_names(source: SourcePosition) -> SourcePosition:
    """`source` in the mode of WHOLE_NAMES."""
    if source.topic_pattern is None:
        return source
    pattern = re.sub(r"(?s)^(\(\?\w+\))?(.*)", r"\1\\A(?:\2)\\z", source.topic_pattern, count=1)
    return replace(source, topic_pattern=pattern)


def parse_source(
    index: int, description: str, processed: Offsets | None = None, began: Offsets | None = None
) -> SourcePosition:
    """The source in a progress' `description`, such as `KafkaV2[Subscribe[orders, returns]]`, at
    these offsets. It has no topics where the description names none, and never brokers."""
    match = _STRATEGY.fullmatch(description)
    strategy, value = match.groups() if match is not None else ("", "")
    topics: list[str] | None = None
    assigned: dict[str, list[int]] | None = None
    if strategy == "Subscribe":
        topics = [topic for part in value.split(",") if (topic := part.strip())]
    elif strategy == "Assign":
        assigned = _parse_partitions(value)
        topics = list(assigned) if assigned is not None else None
    if any(len(topic) > MAX_TOPIC_NAME for topic in topics or ()):
        topics = assigned = None
    return SourcePosition(
        source=index,
        topics=topics,
        topic_pattern=value if strategy == "SubscribePattern" and len(value) <= MAX_TEXT else None,
        assigned=assigned,
        processed=processed,
        began=began,
    )


def parse_starting(options: Mapping[str, str]) -> StartingOffsets | None:
    """The `starting` of a source with these options, whose names are in lower case."""
    text = options.get("startingoffsets", "latest").strip()
    if _BY_TIMESTAMP & options.keys():
        return None  # these options take precedence
    try:
        return {} if text.lower() == "earliest" else _starting.decode(text)
    except NOT_JSON:
        # "latest", or Spark parses it in another way.
        return None


def _parse_partitions(text: str) -> dict[str, list[int]] | None:
    """`orders-0, orders-1`, the format of Kafka's clients."""
    partitions: dict[str, list[int]] = {}
    for part in text.split(","):
        match = _PARTITION.fullmatch(part.strip())
        if match is None or (number := int(match.group(2))) > MAX_PARTITION:
            return None
        partitions.setdefault(match.group(1), []).append(number)
    return {topic: sorted(numbers) for topic, numbers in sorted(partitions.items())}


def described(
    positions: Iterable[SourcePosition], description: QueryDescription
) -> list[SourcePosition]:
    """The positions in the order of the sources' numbers, each with the topics of its described
    source; unchanged without a description. Without positions: the described sources."""
    if not description.sources:
        found = map(with_whole_names, positions) if description.whole_names else positions
        return sorted(found, key=attrgetter("source"))
    # Spark may number the sources differently from the plan (if a source is read twice), so they
    # are matched by their topics.
    sources, unmatched = description.sources, list(description.sources)
    result = []
    for position in sorted(positions, key=attrgetter("source")):
        topics = set(position.processed or ())
        source = next((each for each in unmatched if reads(each, topics)), None)
        if source is not None:
            unmatched.remove(source)
        elif len(sources) == 1:
            source = sources[0]
        else:
            source = next((each for each in sources if reads(each, topics)), _UNKNOWN)
        number, processed, began = position.source, position.processed, position.began
        starting = source.starting if processed is None else None
        result.append(
            replace(source, source=number, processed=processed, began=began, starting=starting)
        )
    return result or list(sources)

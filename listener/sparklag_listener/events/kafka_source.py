"""A query's Kafka sources, as it was given them, or as its progress names them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparklag_schemas import IsolationLevel
from sparklag_schemas.bounds import MAX_PARTITION, MAX_TEXT, MAX_TOPIC_NAME

_STRATEGY = re.compile(r"Kafka\w*\[(Subscribe|SubscribePattern|Assign)\[(.*)\]\]\s*", re.DOTALL)
_PARTITION = re.compile(r"(.+)-(\d{1,10})")


@dataclass(frozen=True)
class KafkaSource:
    """A Kafka source as the query was given it. No other option is ever read: some are secret."""

    index: int
    """Its place among the query's streaming sources."""
    topics: tuple[str, ...] | None
    topic_pattern: str | None
    bootstrap_servers: str | None
    isolation_level: IsolationLevel
    assigned: dict[str, list[int]] | None = None
    """The partitions of each topic, where it was given them. None: it reads all."""

    def reads(self, topics: set[str]) -> bool:
        """Whether all of `topics` can be this source's."""
        if self.topics is not None:
            return topics <= set(self.topics)
        if self.topic_pattern is None:
            return False
        try:
            # Spark takes a topic in which the pattern is found anywhere.
            return all(re.search(self.topic_pattern, topic) for topic in topics)
        except re.error:
            # Java's expressions know more than Python's: take the pattern at its word.
            return True


@dataclass(frozen=True)
class QueryDescription:
    """What a query says of itself: where it reads, and where its checkpoint is."""

    sources: tuple[KafkaSource, ...] = ()
    checkpoint_location: str | None = None


def named_source(index: int, description: str) -> KafkaSource | None:
    """The source in a progress' `description`, such as `KafkaV2[Subscribe[orders, returns]]`.

    None where it does not say what is read. Brokers and isolation level are not in it.
    """
    found = _STRATEGY.fullmatch(description)
    if found is None:
        return None
    strategy, told = found.groups()
    topics: tuple[str, ...] | None = None
    assigned: dict[str, list[int]] | None = None
    if strategy == "Subscribe":
        topics = tuple(topic for part in told.split(",") if (topic := part.strip()))
    elif strategy == "Assign":
        assigned = _assigned(told)
        topics = tuple(assigned) if assigned is not None else None
    elif len(told) > MAX_TEXT:
        return None
    if any(len(topic) > MAX_TOPIC_NAME for topic in topics or ()):
        return None
    return KafkaSource(
        index=index,
        topics=topics,
        topic_pattern=told if strategy == "SubscribePattern" else None,
        bootstrap_servers=None,
        isolation_level="read_uncommitted",
        assigned=assigned,
    )


def _assigned(told: str) -> dict[str, list[int]] | None:
    """`orders-0, orders-1`, as Kafka's own clients write partitions."""
    partitions: dict[str, list[int]] = {}
    for part in told.split(","):
        found = _PARTITION.fullmatch(part.strip())
        if found is None or (number := int(found.group(2))) > MAX_PARTITION:
            return None
        partitions.setdefault(found.group(1), []).append(number)
    return {topic: sorted(numbers) for topic, numbers in sorted(partitions.items())}

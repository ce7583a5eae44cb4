"""What a query reads and where its checkpoint is, from its plan in the JVM."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from py4j.protocol import Py4JError

from sparklag_listener.events.kafka_source import QueryDescription
from sparklag_schemas import SourcePosition
from sparklag_schemas.codec import NOT_JSON
from sparklag_schemas.text.locations import redact_location

_OPTIONS = frozenset(
    ("subscribe", "subscribepattern", "assign", "kafka.bootstrap.servers", "kafka.isolation.level")
)


def describe_query(query: Any) -> QueryDescription:
    """Of Java's `query`; empty where Spark does not give it."""
    try:
        return describe_execution(query.streamingQuery())
    except (Py4JError, OSError, AttributeError, TypeError):
        # Another kind of query, or one that is stopping.
        return QueryDescription()


def describe_execution(execution: Any) -> QueryDescription:
    """Of the StreamExecution in a query."""
    try:
        checkpoint = redact_location(str(execution.resolvedCheckpointRoot()))
        return QueryDescription(_kafka_sources(execution), checkpoint)
    except (Py4JError, OSError, AttributeError, TypeError):
        # A Spark with other internals, or one that is stopping.
        return QueryDescription()


def _kafka_sources(execution: Any) -> tuple[SourcePosition, ...]:
    leaves = execution.analyzedPlan().collectLeaves()
    sources = []
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if leaf.nodeName() not in ("StreamingRelationV2", "StreamingRelation"):
            continue
        if leaf.sourceName() == "kafka":
            sources.append(_kafka_source(index, leaf.extraOptions().asCaseSensitiveMap()))
    return tuple(sources)


def _kafka_source(index: int, java_options: Any) -> SourcePosition:
    # Option names are case-insensitive, values are not. Only these are read.
    options = {
        name.lower(): str(java_options.get(name))
        for name in (str(key) for key in java_options.keySet())
        if name.lower() in _OPTIONS
    }
    topics: list[str] | None = None
    assigned = None
    if "subscribe" in options:
        topics = [topic.strip() for topic in options["subscribe"].split(",") if topic.strip()]
    elif "assign" in options:
        topics = sorted(set(re.findall(r'"([^"]+)"\s*:\s*\[', options["assign"])))
    if "assign" in options:
        try:
            assigned = msgspec.json.decode(options["assign"], type=dict[str, list[int]])
        except NOT_JSON:
            # Spark parses it otherwise, or fails the query itself.
            assigned = None
    committed_only = options.get("kafka.isolation.level", "").lower() == "read_committed"
    return SourcePosition(
        source=index,
        topics=topics,
        topic_pattern=options.get("subscribepattern"),
        bootstrap_servers=options.get("kafka.bootstrap.servers"),
        isolation_level="read_committed" if committed_only else "read_uncommitted",
        assigned=assigned,
    )

"""What a query reads, and how: by the options and the trigger of Java's StreamExecution."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import structs

from sparklag_listener.classic.listener import UNAVAILABLE
from sparklag_listener.events.kafka_source import (
    WHOLE_NAMES,
    QueryDescription,
    parse_starting,
    with_whole_names,
)
from sparklag_schemas import SourcePosition
from sparklag_schemas.codec import NOT_JSON
from sparklag_schemas.messages.bounds import bounded_s
from sparklag_schemas.messages.enumerations import Mode
from sparklag_schemas.text.locations import redact_location

_ENDING_TRIGGERS = ("AvailableNow", "OneTime")
_OPTIONS = frozenset(
    (
        *("subscribe", "subscribepattern", "assign"),
        *("kafka.bootstrap.servers", "kafka.isolation.level"),
        *("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"),
    )
)
_TRIGGER = re.compile(r"(\w+)Trigger(?:\((\d+)\))?")
"""The text of Spark's trigger, with its interval in milliseconds."""
_MODES: dict[str, Mode] = {"Continuous": "continuous", "RealTime": "real-time"}
"""By the trigger. The others run micro-batches."""


def describe_execution(execution: Any) -> QueryDescription:
    """The description of Java's StreamExecution; empty where Spark does not expose it."""
    try:
        checkpoint = redact_location(str(execution.resolvedCheckpointRoot()))
        sources = _kafka_sources(execution)
    except UNAVAILABLE:
        return QueryDescription()
    if any(source.starting is not None for source in sources) and not _is_new(execution):
        sources = tuple(structs.replace(source, starting=None) for source in sources)
    mode, interval_s, ends_by_itself = trigger_of(execution)
    return QueryDescription(
        sources,
        checkpoint,
        mode=mode,
        trigger_interval_s=interval_s,
        ends_by_itself=ends_by_itself,
    )


def _is_new(execution: Any) -> bool:
    """True: no batch is in the checkpoint's log of commits. Lists a folder of the checkpoint."""
    try:
        return bool(execution.commitLog().getLatestBatchId().isEmpty())
    except UNAVAILABLE:
        return False


def trigger_of(execution: Any) -> tuple[Mode | None, float | None, bool | None]:
    """The mode, the interval of the trigger, and whether the query ends by itself. None: Spark does
    not expose it."""
    with suppress(*UNAVAILABLE):
        if match := _TRIGGER.match(str(execution.trigger().toString())):
            name, interval_ms = match.groups()
            interval_s = bounded_s(int(interval_ms or 0) / 1000 or None)
            return _MODES.get(name, "micro-batch"), interval_s, name in _ENDING_TRIGGERS
    return None, None, None


def _kafka_sources(execution: Any) -> tuple[SourcePosition, ...]:
    leaves = execution.analyzedPlan().collectLeaves()
    sources = tuple(
        _kafka_source(index, leaf.extraOptions().asCaseSensitiveMap())
        for index in range(leaves.size())
        if (leaf := leaves.apply(index)).nodeName() == "StreamingRelationV2"
        # The format as the query names it, or its class.
        and str(leaf.sourceName()).lower().rpartition(".")[2] in ("kafka", "kafkasourceprovider")
    )
    if any(source.topic_pattern is not None for source in sources):
        with suppress(*UNAVAILABLE):
            value = str(execution.sparkSessionForStream().conf().get(WHOLE_NAMES))
            if value.strip().lower() == "true":
                return tuple(map(with_whole_names, sources))
    return sources


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
        # Not JSON: Spark parses it in another way, or fails the query itself.
        with suppress(*NOT_JSON):
            assigned = msgspec.json.decode(options["assign"], type=dict[str, list[int]])
    pattern = options.get("subscribepattern")
    committed_only = options.get("kafka.isolation.level", "").lower() == "read_committed"
    return SourcePosition(
        source=index,
        topics=topics,
        topic_pattern=pattern.strip() if pattern is not None else None,
        bootstrap_servers=options.get("kafka.bootstrap.servers"),
        isolation_level="read_committed" if committed_only else "read_uncommitted",
        assigned=assigned,
        starting=parse_starting(options),
    )

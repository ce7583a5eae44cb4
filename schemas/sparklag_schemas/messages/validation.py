"""Validation of received messages: limits on partitions, sources, times and origins, and redaction
of their texts. Pure.

Limits on single fields are part of their types: see `bounds`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from sparklag_schemas.errors import FutureTime, OutOfBounds, WrongPlace
from sparklag_schemas.messages.enumerations import is_driver_origin
from sparklag_schemas.messages.lag_event import LagEvent, TopicLag
from sparklag_schemas.messages.observation import Observation
from sparklag_schemas.settings import LimitSettings
from sparklag_schemas.text.locations import redact_location
from sparklag_schemas.text.printable import printable
from sparklag_schemas.text.redaction import HIDDEN, redact

_MAX_SOURCES: Final = 100
"""Kafka sources of one query."""
_CLOCKS_DIFFER_MS: Final = 1_000
"""Less than a heartbeat: the next message of a live query is newer than any message before."""
_MAX_REASONS: Final = 50
"""Distinct reasons of one event's partitions, numbers aside. Honest events have a few."""
_NUMBER: Final = re.compile(r"(?<![\w.+/=-])\d{1,19}(?![\w+/=-])")

Message = TypeVar("Message", bound=Observation | LagEvent)


class MessageLimits:
    """Checks received messages by the settings."""

    def __init__(self, settings: LimitSettings) -> None:
        self._partitions = settings.partitions
        self._ahead_ms = int(settings.clock_ahead_s * 1000)

    def check(self, message: object, written_at_ms: int) -> None:
        """`written_at_ms`: the latest possible time of its writing, by a trusted clock. Raises
        OutOfBounds; FutureTime where a time in it is more than `limits.clock_ahead_s` later."""
        numbers: Iterator[Collection[int]] = iter(())
        times = [getattr(message, name, None) for name in ("measured_at", "status_since")]
        if isinstance(message, Observation | LagEvent):
            times += (message.observed_at, message.processed_at, *_batch_times(message))
        if isinstance(message, Observation):
            _check_sources([source.source for source in message.sources])
            numbers = _observed_partitions(message)
        elif isinstance(message, LagEvent):
            _check_sources({topic.source for topic in message.topics})
            _check_distinct([(topic.source, topic.topic) for topic in message.topics], "a topic")
            numbers = ([p.partition for p in topic.partitions] for topic in message.topics)
        self._check_partitions(numbers)
        latest_ms = max((at_ms for at_ms in times if at_ms is not None), default=0)
        if latest_ms > written_at_ms + self._ahead_ms:
            raise FutureTime(
                f"a time in it is {(latest_ms - written_at_ms) / 1000:,.0f} s after it was written:"
                f" at most {self._ahead_ms / 1000:g} (limits.clock_ahead_s); which clock is wrong?"
            )

    def _check_partitions(self, numbers: Iterable[Collection[int]]) -> None:
        count, highest = 0, -1
        for of_topic in numbers:
            _check_distinct(of_topic, "a partition")
            count += max(1, len(of_topic))
            highest = max((highest, *of_topic))
        if count > self._partitions:
            raise OutOfBounds(
                f"{count:,} topics and partitions: of one query at most {self._partitions:,} are"
                " taken (limits.partitions)"
            )
        if highest >= self._partitions:
            raise OutOfBounds(
                f"partition {highest}: a number below {self._partitions:,} is taken"
                " (limits.partitions)"
            )


def in_time(message: Message, written_at_ms: int) -> Message:
    """The message, with its version limited to the latest possible time of its writing: a later
    version would hide every message until that time."""
    latest_ms = written_at_ms + _CLOCKS_DIFFER_MS
    version = ("observed_at", "measured_at")
    later = {name: latest_ms for name in version if getattr(message, name, 0) > latest_ms}
    return replace(message, **later) if later else message


def check_origin(observation: Observation) -> None:
    """Raises WrongPlace for an observation that does not come from a driver: the service reads
    checkpoints and groups itself."""
    is_group = observation.group is not None or observation.query_id.startswith("group:")
    if is_group or not is_driver_origin(observation.origin) or observation.run_id is None:
        raise WrongPlace(
            f"its origin is {printable(observation.origin)}, its run"
            f" {printable(observation.run_id or 'none')}: only drivers write here, with a run"
        )


def _check_sources(sources: Collection[int]) -> None:
    if len(sources) > _MAX_SOURCES:
        raise OutOfBounds(f"{len(sources)} sources, at most {_MAX_SOURCES} are taken")
    _check_distinct(sources, "a source")


def _check_distinct(named: Collection[object], what: str) -> None:
    # In Prometheus it would be two series of one name, and in sums it would count twice.
    if len(set(named)) < len(named):
        raise OutOfBounds(f"{what} is named twice")


def _observed_partitions(observation: Observation) -> Iterator[Collection[int]]:
    for source in observation.sources:
        positions = (source.processed, source.planned, source.began, source.assigned)
        named = [position for position in positions if position]
        # One topic after the other: a set of each would take more memory than the message.
        for topic in set(source.topics or ()).union(*named):
            yield set().union(*[position[topic] for position in named if topic in position])


def _batch_times(message: Observation | LagEvent) -> Iterator[int]:
    if message.batch is not None:
        yield message.batch.started_at
    running = message.running_batch
    if running is not None:
        yield from (running.started_at, running.observed_at, running.progressed_at)


class _PartitionReasons:
    """Redacts the reasons of an event's partitions. Of thousands, most differ only in numbers."""

    def __init__(self) -> None:
        self._clean: set[str] = set()
        self._left = _MAX_REASONS

    def redact(self, reason: str) -> str:
        """`reason` without secrets. HIDDEN after too many distinct reasons: each takes 5 ms."""
        template = _NUMBER.sub("0", reason)
        if template in self._clean:
            return reason
        if self._left == 0:
            return HIDDEN
        self._left -= 1
        if redact(template) == template:
            self._clean.add(template)
            return reason
        return redact(reason)


def redacted(message: Message) -> Message:
    """The message without what may be a secret; the message itself where there is none."""
    changed: dict[str, Any] = {}
    if message.exception is not None:
        changed["exception"] = redact(message.exception)
    if message.checkpoint_location is not None:
        changed["checkpoint_location"] = redact_location(message.checkpoint_location)
    if isinstance(message, LagEvent):
        for name in ("reason", "catch_up_reason"):
            reason = getattr(message, name)
            changed[name] = None if reason is None else redact(reason)
        reasons = _PartitionReasons()
        changed["topics"] = [_redacted_topic(topic, reasons) for topic in message.topics]
    changed = {name: value for name, value in changed.items() if value != getattr(message, name)}
    return replace(message, **changed) if changed else message


def _redacted_topic(topic: TopicLag, reasons: _PartitionReasons) -> TopicLag:
    safe = {
        index: reason
        for index, partition in enumerate(topic.partitions)
        if partition.reason is not None
        and (reason := reasons.redact(partition.reason)) != partition.reason
    }
    if not safe:
        return topic
    partitions = list(topic.partitions)
    for index, reason in safe.items():
        partitions[index] = replace(partitions[index], reason=reason)
    return replace(topic, partitions=partitions)

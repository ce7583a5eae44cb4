"""Hides what may be a secret in the texts of messages. Pure."""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

import msgspec

from sparklag_schemas.messages.lag_event import LagEvent, TopicLag
from sparklag_schemas.messages.observation import Observation
from sparklag_schemas.text.locations import redact_location
from sparklag_schemas.text.redaction import HIDDEN, redact

_MAX_REASONS: Final = 50
"""Distinct reasons of one event's partitions, numbers aside. Honest events have a few."""
_NUMBER: Final = re.compile(r"(?<![\w.+/=-])\d{1,19}(?![\w+/=-])")
Message = TypeVar("Message", bound=Observation | LagEvent)


class _PartitionReasons:
    """Redacts the reasons of an event's partitions. Most of thousands differ in numbers only."""

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
    return msgspec.structs.replace(message, **changed) if changed else message


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
        partitions[index] = msgspec.structs.replace(partitions[index], reason=reason)
    return msgspec.structs.replace(topic, partitions=partitions)

"""A lag event's summary: the event without its partitions, topics by name. Pure."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from sparklag_schemas import LagEvent
from sparklag_schemas.bounds import TopicName
from sparklag_schemas.codec import encode


class _Topic(Struct, frozen=True, gc=False):
    topic: TopicName


class _WithoutPartitions(LagEvent, frozen=True, kw_only=True):
    topics: list[_Topic]  # type: ignore[assignment]  # the partitions are not decoded


_decoder: Final = msgspec.json.Decoder(_WithoutPartitions)


def summary(event: LagEvent) -> bytes:
    """Its JSON."""
    topics = sorted({topic.topic for topic in event.topics})
    # msgspec checks types only when it decodes.
    return encode(replace(event, topics=topics))


def summary_of_document(document: bytes) -> bytes:
    """The same, from the event's JSON."""
    return summary(_decoder.decode(document))

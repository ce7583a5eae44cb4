"""What a progress says of its batch besides the offsets: why it may lag. Pure.

None of it is worth an observation: what cannot be read is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Final

import msgspec
from msgspec import Raw, Struct

from sparklag_schemas import Offsets
from sparklag_schemas.bounds import Count, bounded
from sparklag_schemas.codec import NOT_JSON

_NULL: Final = b"null"


class EventTime(Struct, frozen=True):
    """Epoch milliseconds; None where there is none."""

    watermark_at: int | None = None
    max_at: int | None = None
    """Highest event time in this batch."""


class StateSize(Struct, frozen=True):
    """Of all state stores of a query; None where it has none."""

    rows: int | None = None
    memory_bytes: int | None = None


class _StateOperator(Struct, rename="camel"):
    num_rows_total: Count
    memory_used_bytes: Count | None = None


class _EventTime(Struct):
    watermark: str | None = None
    max: str | None = None


_offsets = msgspec.json.Decoder(Offsets)
_text = msgspec.json.Decoder(str)
_operators = msgspec.json.Decoder(list[_StateOperator])
_event_time = msgspec.json.Decoder(_EventTime)


def offsets_of(written: Raw) -> Offsets | None:
    """What a Kafka source says of its partitions: an object, or in Connect its text.

    Raises one of NOT_JSON.
    """
    raw = bytes(written)
    if raw == _NULL:
        return None
    return _offsets.decode(_text.decode(raw) if raw.startswith(b'"') else raw)


def rate_limited(sources: Iterable[tuple[Raw, Offsets | None, Raw]]) -> bool | None:
    """Whether there was more to read than the batch took, when it was planned.

    `sources`: the end of the batch in each Kafka source, as it is written and as it reads, and
    where the log ended. One that had nothing in this batch has no end. None: no source says.
    """
    limited: bool | None = None
    for end_text, ends, latest_text in sources:
        if ends is None or latest_text == Raw(_NULL):
            continue
        limited = limited or False
        if end_text == latest_text:
            continue
        try:
            latest = offsets_of(latest_text) or {}
        except NOT_JSON:
            continue
        if any(
            end < latest.get(topic, {}).get(partition, end)
            for topic, partitions in ends.items()
            for partition, end in partitions.items()
        ):
            return True
    return limited


def state_size(operators: Raw) -> StateSize:
    """Of Spark's `stateOperators`."""
    raw = bytes(operators)
    if raw in (b"[]", _NULL):
        return StateSize()
    try:
        found = _operators.decode(raw)
    except NOT_JSON:
        return StateSize()
    memory = [one.memory_used_bytes for one in found if one.memory_used_bytes is not None]
    rows = bounded(sum(one.num_rows_total for one in found))
    return StateSize(rows, bounded(sum(memory)) if memory else None)


def event_time(written: Raw) -> EventTime:
    """Of Spark's `eventTime`. A watermark of 1970 is none yet."""
    raw = bytes(written)
    if raw in (b"{}", _NULL):
        return EventTime()
    try:
        found = _event_time.decode(raw)
        watermark_at = epoch_ms_of(found.watermark) if found.watermark is not None else None
        max_at = epoch_ms_of(found.max) if found.max is not None else None
    except NOT_JSON:
        return EventTime()
    return EventTime(watermark_at or None, max_at)


def epoch_ms_of(timestamp: str) -> int:
    """Of a time as Spark writes it. Raises ValueError."""
    # Python 3.10 does not read the Z.
    time = datetime.fromisoformat(timestamp.replace("Z", "+00:00"))
    if time.tzinfo is None:
        time = time.replace(tzinfo=timezone.utc)
    return round(time.timestamp() * 1000)

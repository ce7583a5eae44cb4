"""Parses Spark's progress JSON. Pure.

Ids, time, batch and a list of sources are required. Everything else is optional: a value of another
form is None, and costs nothing beside it. Other sources than Kafka's write what they like.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from sparklag_listener.events.kafka_source import parse_source
from sparklag_schemas import Batch, MalformedMessage, Offsets, SourcePosition
from sparklag_schemas.codec import NOT_JSON, bounded_json
from sparklag_schemas.messages.bounds import (
    MAX_DURATION_MS,
    MAX_EPOCH_MS,
    MAX_NAME,
    Count,
    Name,
    bounded,
)
from sparklag_schemas.text.printable import printable
from sparklag_schemas.timestamps import datetime_ms

_NULL = Raw(b"null")
_Value = TypeVar("_Value")


class _Source(Struct, rename="camel"):
    description: Raw = _NULL
    start_offset: Raw = _NULL
    end_offset: Raw = _NULL
    latest_offset: Raw = _NULL
    num_input_rows: Raw = _NULL


_NO_SOURCE: Final = _Source()


class _StateOperator(Struct, rename="camel"):
    num_rows_total: Count
    memory_used_bytes: Count | None = None


class _EventTime(Struct):
    watermark: datetime | None = None
    max: datetime | None = None


class _Progress(Struct, rename="camel"):
    id: Name
    run_id: Name
    timestamp: datetime
    batch_id: Count
    # Of other forms too; Raw would keep more than a hundred bytes for a number.
    sources: list[_Source | list[Raw] | str | int | float | bool | None]
    name: Raw = _NULL
    num_input_rows: Raw = _NULL
    """The last progress from a Connect server has this number only for each source."""
    duration_ms: Raw = _NULL
    state_operators: Raw = _NULL
    event_time: Raw = _NULL


class Progress(Struct, frozen=True):
    """One progress event."""

    query_id: str
    run_id: str
    name: str | None
    batch_id: int | None
    """The last completed batch. None before the first."""
    idle: bool
    """True: the trigger ran no batch. Spark then reports the id of the next batch."""
    completed_at_ms: int
    batch: Batch
    sources: dict[int, SourcePosition]
    """The Kafka sources by their index, with what their descriptions name and the offsets of this
    batch. `processed` None: no data in this batch, so the position is unchanged; or offsets that
    are not topics and partitions. `began` None: the query's first batch, or no data."""


_progress = msgspec.json.Decoder(_Progress)
_offsets = msgspec.json.Decoder(Offsets)
_text = msgspec.json.Decoder(str)
_integer = msgspec.json.Decoder(int)
_object = msgspec.json.Decoder(dict[str, Raw])
_operators = msgspec.json.Decoder(list[_StateOperator])
_event_time = msgspec.json.Decoder(_EventTime)


def parse_progress(text: str) -> Progress:
    """The progress in `text`, of Spark 3.4 to 4.x, or a Connect client.

    Raises MalformedMessage, which names the missing or wrong field.
    """
    try:
        progress = _progress.decode(bounded_json(text.encode()))
        started_at_ms = datetime_ms(progress.timestamp)
        if started_at_ms < 0:
            raise ValueError(f"timestamp {progress.timestamp} is before 1970")
    except NOT_JSON as error:
        raise MalformedMessage(printable(f"progress of a query: {error}")) from error
    durations = _optional(_object, progress.duration_ms) or {}
    phases = {
        phase: duration_ms
        for phase, raw in durations.items()
        # Negative where the clock was set back in the meantime.
        if (duration_ms := _optional(_integer, raw)) is not None
        and 0 <= duration_ms <= MAX_DURATION_MS
    }
    duration = phases.get("triggerExecution")
    sources = [s if isinstance(s, _Source) else _NO_SOURCE for s in progress.sources]
    rows = _optional(_integer, progress.num_input_rows)
    if rows is None:
        rows = sum(_optional(_integer, each.num_input_rows) or 0 for each in sources)
    idle = bool(phases) and "addBatch" not in durations and not rows
    batch_id = progress.batch_id - idle
    kafka = {
        index: (source, description)
        for index, source in enumerate(sources)
        if (description := _optional(_text, source.description) or "").startswith("Kafka")
    }
    positions = {
        index: parse_source(
            index,
            description,
            _parse_offsets(source.end_offset),
            _parse_offsets(source.start_offset),
        )
        for index, (source, description) in kafka.items()
    }
    name = _optional(_text, progress.name)
    state_rows, state_memory_bytes = _state_size(progress.state_operators)
    watermark_at, max_event_time_at = _event_times(progress.event_time)
    return Progress(
        query_id=progress.id,
        run_id=progress.run_id,
        name=name[:MAX_NAME] if name else name,
        batch_id=batch_id if batch_id >= 0 else None,
        idle=idle,
        completed_at_ms=min(started_at_ms + (duration or 0), MAX_EPOCH_MS),
        batch=Batch(
            started_at=started_at_ms,
            rows=bounded(max(rows, 0)),
            duration_ms=duration,
            phases_ms=phases,
            rate_limited=_is_rate_limited(
                (positions[index].processed, _parse_offsets(source.latest_offset))
                for index, (source, _) in kafka.items()
            ),
            state_rows=state_rows,
            state_memory_bytes=state_memory_bytes,
            watermark_at=watermark_at,
            max_event_time_at=max_event_time_at,
        ),
        sources=positions,
    )


def _optional(decoder: msgspec.json.Decoder[_Value], raw: Raw) -> _Value | None:
    """The value; None where it has another form."""
    try:
        return decoder.decode(raw)
    except NOT_JSON:
        return None


def _parse_offsets(raw: Raw) -> Offsets | None:
    """Parse an object, or its text as in Connect. None: null, or another form."""
    content = bytes(raw)
    try:
        if content.startswith(b'"'):
            content = _text.decode(content).encode()
        return _offsets.decode(content)
    except NOT_JSON:
        return None


def _is_rate_limited(sources: Iterable[tuple[Offsets | None, Offsets | None]]) -> bool | None:
    """True: when the batch was planned, more records were available than it took. None: unknown.

    `sources`: the end of the batch and the log end offsets of each Kafka source. A source without
    data in this batch has no end.
    """
    comparable = [
        (ends, latest) for ends, latest in sources if ends is not None and latest is not None
    ]
    if not comparable:
        return None
    return any(
        end < latest.get(topic, {}).get(partition, end)
        for ends, latest in comparable
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    )


def _state_size(raw: Raw) -> tuple[int | None, int | None]:
    operators = _optional(_operators, raw)
    if not operators:
        return None, None
    memory = [each.memory_used_bytes for each in operators if each.memory_used_bytes is not None]
    rows = bounded(sum(each.num_rows_total for each in operators))
    return rows, bounded(sum(memory)) if memory else None


def _event_times(raw: Raw) -> tuple[int | None, int | None]:
    try:
        times = _event_time.decode(raw)
        watermark_at = datetime_ms(times.watermark) if times.watermark is not None else None
        max_at = datetime_ms(times.max) if times.max is not None else None
    except NOT_JSON:
        return None, None
    # A watermark of 1970 means no watermark yet.
    return watermark_at or None, max_at

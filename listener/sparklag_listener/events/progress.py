"""Reads Spark's progress JSON. Pure."""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from sparklag_listener.events.kafka_source import KafkaSource, named_source
from sparklag_listener.events.progress_batch import (
    epoch_ms_of,
    event_time,
    offsets_of,
    rate_limited,
    state_size,
)
from sparklag_schemas import Batch, MalformedMessage, Offsets
from sparklag_schemas.bounds import (
    MAX_DURATION_MS,
    MAX_EPOCH_MS,
    MAX_NAME,
    Count,
    Name,
    bounded,
)
from sparklag_schemas.codec import NOT_JSON
from sparklag_schemas.printable import printable

_NULL = msgspec.Raw(b"null")


class _Source(Struct):
    description: str = ""
    startOffset: msgspec.Raw = _NULL  # noqa: N815 - Spark's name
    endOffset: msgspec.Raw = _NULL  # noqa: N815
    latestOffset: msgspec.Raw = _NULL  # noqa: N815
    numInputRows: int = 0  # noqa: N815


class _Progress(Struct, rename="camel"):
    id: Name
    run_id: Name
    timestamp: str
    batch_id: Count
    sources: list[_Source]
    name: str | None = None
    num_input_rows: int | None = None
    """A Connect server, asked for the last progress, says it of each source only."""
    duration_ms: dict[str, int] = field(default_factory=dict)
    state_operators: msgspec.Raw = _NULL
    event_time: msgspec.Raw = _NULL


class _Batch(Struct, rename="camel"):
    batch_id: Count
    duration_ms: dict[str, int] = field(default_factory=dict)


class Progress(Struct, frozen=True):
    """One progress event. `processed` holds the Kafka sources by their index."""

    query_id: str
    run_id: str
    name: str | None
    batch_id: int | None
    """The last completed batch. None before the first."""
    idle: bool
    """No batch was run: it says where the query stands. Spark gives it the next batch's number."""
    completed_at_ms: int
    batch: Batch
    processed: dict[int, Offsets | None]
    """None: this source had nothing in this batch; its position is as before."""
    began: dict[int, Offsets | None]
    """The same of where this batch began. None: the query's first, or nothing in it."""
    named: dict[int, KafkaSource]
    """What each says it reads, where its description says so."""


_decoder = msgspec.json.Decoder(_Progress)
_batch_decoder = msgspec.json.Decoder(_Batch)


def parse_progress(text: str) -> Progress:
    """The progress in `text`, as Spark 3.4 to 4.x write it, or a Connect client.

    Raises MalformedMessage with what is missing or wrong.
    """
    try:
        found = _decoder.decode(text)
        started_at_ms = epoch_ms_of(found.timestamp)
        if started_at_ms < 0:
            raise ValueError(f"timestamp {found.timestamp} is before 1970")
    except NOT_JSON as error:
        raise MalformedMessage(printable(f"progress of a query: {error}")) from error
    phases = {
        phase: took
        for phase, took in found.duration_ms.items()
        # By a clock that was set back while it ran it took less than nothing.
        if 0 <= took <= MAX_DURATION_MS and len(phase) <= MAX_NAME
    }
    duration = phases.get("triggerExecution")
    idle = bool(found.duration_ms) and "addBatch" not in found.duration_ms
    rows = found.num_input_rows
    if rows is None:
        rows = sum(source.numInputRows for source in found.sources)
    idle = idle and not rows
    batch_id = found.batch_id - idle
    kafka = {
        index: source
        for index, source in enumerate(found.sources)
        if source.description.startswith("Kafka")
    }
    processed = {index: _end_offsets(source) for index, source in kafka.items()}
    state, times = state_size(found.state_operators), event_time(found.event_time)
    return Progress(
        query_id=found.id,
        run_id=found.run_id,
        name=found.name[:MAX_NAME] if found.name else found.name,
        batch_id=batch_id if batch_id >= 0 else None,
        idle=idle,
        completed_at_ms=min(started_at_ms + (duration or 0), MAX_EPOCH_MS),
        batch=Batch(
            started_at=started_at_ms,
            rows=bounded(max(rows, 0)),
            duration_ms=duration,
            phases_ms=phases,
            rate_limited=rate_limited(
                (source.endOffset, processed[index], source.latestOffset)
                for index, source in kafka.items()
            ),
            state_rows=state.rows,
            state_memory_bytes=state.memory_bytes,
            watermark_at=times.watermark_at,
            max_event_time_at=times.max_at,
        ),
        processed=processed,
        began={index: _start_offsets(source) for index, source in kafka.items()},
        named={
            index: named
            for index, source in kafka.items()
            if (named := named_source(index, source.description)) is not None
        },
    )


def completed_batch(text: str) -> tuple[int | None, bool]:
    """The last completed batch by the progress in `text`, and whether that is the one it is of.

    Reads no offsets. Raises MalformedMessage.
    """
    try:
        found = _batch_decoder.decode(text)
    except NOT_JSON as error:
        raise MalformedMessage(printable(f"progress of a query: {error}")) from error
    ran = "addBatch" in found.duration_ms
    batch_id = found.batch_id - (not ran)
    return batch_id if batch_id >= 0 else None, ran


def _end_offsets(source: _Source) -> Offsets | None:
    try:
        return offsets_of(source.endOffset)
    except NOT_JSON as error:
        text = printable(f"endOffset of {source.description}: {error}")
        raise MalformedMessage(text) from error


def _start_offsets(source: _Source) -> Offsets | None:
    """What cannot be read is not known: it is not worth an observation."""
    try:
        return offsets_of(source.startOffset)
    except NOT_JSON:
        return None

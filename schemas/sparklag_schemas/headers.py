"""CloudEvents 1.0 headers, binary content mode of the Kafka protocol binding."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timezone
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from sparklag_schemas.codec import JSON
from sparklag_schemas.lag_event import LagEvent
from sparklag_schemas.observation import Observation
from sparklag_schemas.partition_record import PartitionRecord

Headers = list[tuple[str, bytes]]
Header = tuple[str, bytes]

OBSERVATION_TYPE = "sparklag.observation.v1"
LAG_EVENT_TYPE = "sparklag.lag.v1"
PARTITION_TYPE = "sparklag.partition.v1"
TRACEPARENT = "traceparent"
OBSERVATION_SPAN = 2
"""Its number in a batch's trace."""
_TRACEPARENT = re.compile(
    rb"00-(?!0{32})(?P<trace>[0-9a-f]{32})-(?!0{16})(?P<span>[0-9a-f]{16})-[0-9a-f][13579bdf]"
)
"""Of a trace that is sampled."""


class SpanContext(NamedTuple):
    """A span of a batch's trace, by W3C's Trace Context; its ids as that writes them."""

    trace_id: str
    span_id: str

    @property
    def header(self) -> Header:
        """Of the record that the span is about."""
        return TRACEPARENT, f"00-{self.trace_id}-{self.span_id}-01".encode()

    def span(self, number: int) -> SpanContext:
        """A span of the same trace, by its number there, from 1. A trace that is made again, after
        a failure, has the same spans."""
        return SpanContext(self.trace_id, f"{self.trace_id[:15]}{number}")


def batch_trace(observation: Observation) -> SpanContext | None:
    """The context of the observation of a completed batch, from its id. None: it is of none."""
    if observation.cause != "progress":
        return None
    try:
        trace_id = UUID(observation.observation_id).hex
    except ValueError:
        return None
    return SpanContext(trace_id, "").span(OBSERVATION_SPAN)


def received_trace(headers: Iterable[tuple[str, bytes | None]]) -> SpanContext | None:
    """The context in a record's headers. None: there is none, or it is not to be traced."""
    for name, value in headers:
        if name == TRACEPARENT and value is not None and (found := _TRACEPARENT.fullmatch(value)):
            trace_id, span_id = (found[each].decode() for each in ("trace", "span"))
            return SpanContext(trace_id, span_id)
    return None


def observation_headers(
    observation: Observation, content_type: str = JSON, *, traced: bool = False
) -> Headers:
    """Headers of a message on `processed-offsets`."""
    headers = _headers(
        event_id=observation.observation_id,
        event_type=OBSERVATION_TYPE,
        source=f"/sparklag/{observation.cluster}/driver/{observation.run_id}",
        time_ms=observation.observed_at,
        subject=observation.query_id,
        content_type=content_type,
    )
    if traced and (context := batch_trace(observation)) is not None:
        headers.append(context.header)
    return headers


def lag_event_headers(event: LagEvent, content_type: str = JSON) -> Headers:
    """Headers of a message on `consumer-lag`."""
    return _headers(
        event_id=event.event_id,
        event_type=LAG_EVENT_TYPE,
        source=_service(event.cluster),
        time_ms=event.measured_at,
        subject=event.query_id,
        content_type=content_type,
    )


def partition_headers(
    record: PartitionRecord, key: str, cluster: str, content_type: str = JSON
) -> Headers:
    """Headers of a message on `consumer-lag-partitions`; `cluster` is that of its lag event."""
    return _headers(
        event_id=f"{record.event_id}/{key}",
        event_type=PARTITION_TYPE,
        source=_service(cluster),
        time_ms=record.measured_at,
        subject=key,
        content_type=content_type,
    )


def _service(cluster: str) -> str:
    return f"/sparklag/{cluster}/service"


def _headers(
    *, event_id: str, event_type: str, source: str, time_ms: int, subject: str, content_type: str
) -> Headers:
    seconds, milliseconds = divmod(time_ms, 1_000)
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", event_id.encode()),
        ("ce_source", source.encode()),
        ("ce_type", event_type.encode()),
        ("ce_time", f"{_second(seconds)}.{milliseconds:03d}Z".encode()),
        ("ce_subject", subject.encode()),
        ("content-type", content_type.encode()),
    ]


@lru_cache(maxsize=64)  # what is measured together is of the same second or two
def _second(epoch_s: int) -> str:
    return datetime.fromtimestamp(epoch_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")

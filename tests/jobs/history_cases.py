"""What the history is tried with: values, targets, a course of events, and what should come of it.

The course's results are computed here a second time, in the plainest way there is: every
millisecond is a sample.
"""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import fastavro
import msgspec

from sparklag_jobs.history.events import WriterSchemas
from sparklag_schemas import LagEvent, PartitionLag, Thresholds, TopicLag, encode
from sparklag_schemas.avro.schema import schema_of
from tests.messages import lag_event

MIDNIGHT_MS = 1_790_035_200_000
STEP_MS = 60_000
WINDOWS_MS = [MIDNIGHT_MS - STEP_MS, MIDNIGHT_MS, MIDNIGHT_MS + 2 * STEP_MS]
HOLD_MS = 30_000

_wide = lag_event(
    event_id="wide",
    topics=[
        TopicLag(topic="empty", source=0, partitions=[]),
        TopicLag(
            topic="clicks",
            source=1,
            partitions=[
                PartitionLag(partition=0, lag=3, lost_records=2, status="DATA_LOSS"),
                PartitionLag(partition=7, reason="no leader"),
            ],
        ),
    ],
)


def _changed(**fields: Any) -> bytes:
    document = msgspec.json.decode(encode(lag_event()))
    return msgspec.json.encode(
        {name: value for name, value in (document | fields).items() if value != "left out"}
    )


OUR_ID, OTHER_ID = 7, 9
OTHER_REASON = "it is a Order, expected sparklag.LagEvent"
AVRO = WriterSchemas(
    has_registry=True, schemas={OUR_ID: schema_of(LagEvent).text}, refused={OTHER_ID: OTHER_REASON}
)


def _framed(schema_id: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + body


def _avro(event: LagEvent) -> bytes:
    buffer = BytesIO()
    value = msgspec.to_builtins(event, str_keys=True)
    fastavro.schemaless_writer(buffer, schema_of(LagEvent).parsed, value)
    return buffer.getvalue()


VALUES: list[tuple[bytes | None, str | None]] = [
    (encode(_wide), None),
    (encode(lag_event(event_id="bare", topics=[], total_lag=None)), None),
    (None, None),  # a tombstone: no event, and nothing that cannot be read
    (b"no json at all", "not the JSON of a lag event"),
    (b'"a text"', "not the JSON of a lag event"),
    (b"null", "not the JSON of a lag event"),
    (b"", "not the JSON of a lag event"),
    (b"\xff\xfe", "not the JSON of a lag event"),
    (encode(_wide)[:-20], "not the JSON of a lag event"),
    (_changed(total_lag="many"), "not the JSON of a lag event"),
    (_changed(topics=[{"topic": "t", "partitions": [{"partition": 1 << 40}]}]),
     "not the JSON of a lag event"),
    (_framed(OUR_ID, _avro(lag_event(event_id="in avro"))), None),
    (_framed(OUR_ID, _avro(lag_event())[:30]), "not Avro of its schema"),
    (_framed(OTHER_ID, b"\x02"), OTHER_REASON),
    (b"\x00\x00", "not Avro of its schema"),
    (_changed(query_id="left out"), "no query_id"),
    (_changed(event_id=None), "no event_id"),
    (_changed(measured_at=None), "no measured_at"),
    (_changed(measured_at=1 << 62), "measured_at is not epoch milliseconds"),
    (_changed(schema_version="2.1"),
     "written in schema version 2.1, this reads 1.x: upgrade sparklag here"),
    (_changed(schema_version="1.9", event_id="newer", something="new"), None),
]  # fmt: skip
"""Values, and why they cannot be read."""

THRESHOLDS = {
    "billing-.*": Thresholds(max_lag=100, max_time_lag_s=60),
    "bill.*": Thresholds(max_lag=1),
    "id-7": Thresholds(max_time_lag_s=5),
    "loose": Thresholds(allowed_lag=10),
}


def _target(number: int, expected: bool | None, **fields: Any) -> tuple[LagEvent, bool | None]:
    return lag_event(event_id=f"target-{number}", max_time_lag_s=None, **fields), expected


def _aged(event: LagEvent, age_s: float) -> LagEvent:
    return msgspec.structs.replace(event, max_time_lag_s=age_s)


TARGETS: list[tuple[LagEvent, bool | None]] = [
    _target(0, True, query="orders"),
    _target(1, False, query="orders", status="STALL"),
    _target(2, None, query="orders", status="UNKNOWN", total_lag=None),
    _target(3, True, query=None, status="FINISHED"),
    # The lag is within, how old it is nobody knows.
    _target(4, None, query="billing-a", total_lag=100),
    _target(5, False, query="billing-a", total_lag=101),
    _target(6, False, query="xbilling-a", status="WARN"),
    _target(7, False, query="billing", total_lag=2),
    _target(8, None, query="other", query_id="id-7"),
    # A pattern that fits and sets neither: the status counts, as no other pattern does.
    _target(9, True, query="loose", total_lag=10**9),
]
TARGETS += [
    (_aged(lag_event(event_id="aged-0", query="billing-b", total_lag=5), 60.0), True),
    (_aged(lag_event(event_id="aged-1", query="billing-b", total_lag=5), 60.5), False),
]


def course() -> list[LagEvent]:
    """Two queries around midnight, with holes, unknown lags, and offsets that go back."""
    chance = random.Random(20)
    result: list[LagEvent] = []
    for query in ("calm", "wild"):
        at_ms = MIDNIGHT_MS - 3 * STEP_MS
        latest, processed = 1_000, 900
        while at_ms < MIDNIGHT_MS + 3 * STEP_MS:
            result.append(_step(f"{query}-{len(result)}", query, at_ms, latest, processed, chance))
            at_ms += chance.choice([1, 1_000, 9_999, 10_000, 31_000, 45_000])
            latest += chance.randrange(50)
            processed = min(latest, processed + chance.randrange(60))
            if query == "wild" and chance.random() < 0.2:
                latest, processed = chance.randrange(10), 0
            elif query == "wild" and chance.random() < 0.2:
                processed -= min(processed, 100)
    chance.shuffle(result)
    return result


def _step(
    event_id: str, query: str, at_ms: int, latest: int, processed: int, chance: random.Random
) -> LagEvent:
    known = chance.random() > 0.15
    lag = latest - processed
    return lag_event(
        event_id=event_id,
        query_id=f"id-{query}",
        query=query,
        status="OK" if chance.random() > 0.3 else "WARN",
        measured_at=at_ms,
        observed_at=at_ms,
        total_lag=lag if known else None,
        max_time_lag_s=lag / 10 if known else None,
        input_rate=float(latest % 7),
        topics=[
            TopicLag(
                topic="t",
                source=0,
                partitions=[
                    PartitionLag(
                        partition=0,
                        latest_offset=latest if known else None,
                        processed_offset=processed,
                        lag=lag if known else None,
                        time_lag_s=lag / 10 if known else None,
                    ),
                    PartitionLag(partition=1, latest_offset=5, processed_offset=5, lag=0),
                ],
            )
        ],
    )


def expected_rows() -> dict[tuple[str, int], dict[str, Any]]:
    """By query id and start: what `course` rolls up to."""
    by_query: dict[str, list[LagEvent]] = defaultdict(list)
    for event in course():
        by_query[event.query_id].append(event)
    result = {}
    for query_id, events in by_query.items():
        events.sort(key=lambda event: (event.measured_at, event.event_id))
        for start_ms in WINDOWS_MS:
            row = _expected(events, start_ms)
            if row:
                result[query_id, start_ms] = row
    return result


def _expected(events: list[LagEvent], start_ms: int) -> dict[str, Any]:
    end_ms = start_ms + STEP_MS
    holding: list[LagEvent] = []  # one for each millisecond
    for event, following in zip(events, [*events[1:], None], strict=True):
        until_ms = event.measured_at + HOLD_MS
        if following is not None:
            until_ms = min(until_ms, following.measured_at)
        held_ms = min(until_ms, end_ms) - max(event.measured_at, start_ms)
        holding += [event] * max(held_ms, 0)
    inside = [event for event in events if start_ms <= event.measured_at < end_ms]
    known = [event for event in holding if event.total_lag is not None]
    status_s: dict[str, float] = defaultdict(float)
    for event in holding:
        status_s[event.status] += 0.001
    lags = sorted(event.total_lag for event in known if event.total_lag is not None)
    rates = sorted(event.input_rate for event in holding if event.input_rate is not None)
    return {
        "events": len(inside),
        "known_s": len(known) / 1000,
        "within_target_s": sum(event.status == "OK" for event in known) / 1000,
        "total_lag_p50": _percentile(lags, 0.5),
        "total_lag_p95": _percentile(lags, 0.95),
        "total_lag_p99": _percentile(lags, 0.99),
        "total_lag_max": lags[-1] if lags else None,
        "max_time_lag_max_s": lags[-1] / 10 if lags else None,
        "input_rate_p95": _percentile(rates, 0.95),
        "status_s": dict(status_s),
        **_growth(events, start_ms, end_ms),
    }


def _percentile(ranked: list[Any], share: float) -> float | None:
    if not ranked:
        return None
    place = share * (len(ranked) - 1)
    below = int(place)
    above = min(below + 1, len(ranked) - 1)
    return float(ranked[below] + (place - below) * (ranked[above] - ranked[below]))


def _growth(events: list[LagEvent], start_ms: int, end_ms: int) -> dict[str, int | None]:
    produced = processed = 0
    latest = done = None
    for event in events:
        partition = event.topics[0].partitions[0]
        inside = start_ms <= event.measured_at < end_ms
        if partition.latest_offset is not None:
            if latest is not None and inside:
                grown = partition.latest_offset - latest
                produced += partition.latest_offset if grown < 0 else grown
            latest = partition.latest_offset
        if partition.processed_offset is not None:
            if done is not None and inside:
                processed += max(0, partition.processed_offset - done)
            done = partition.processed_offset
    any_inside = any(start_ms <= event.measured_at < end_ms for event in events)
    return {
        "produced": produced if any_inside else None,
        "processed": processed if any_inside else None,
    }


def _steady(query: str, begin_ms: int, minutes: int) -> Iterator[LagEvent]:
    for number in range(minutes * 6):
        at_ms = begin_ms + number * 10_000
        yield lag_event(
            event_id=f"{query}-{at_ms}",
            query_id=f"id-{query}",
            query=query,
            measured_at=at_ms,
            observed_at=at_ms,
        )


LATE = next(_steady("late", MIDNIGHT_MS - 30 * STEP_MS, 1))
PARTS: list[list[LagEvent]] = [
    [*_steady("a", MIDNIGHT_MS - 5 * STEP_MS, 10), *_steady("b", MIDNIGHT_MS - 5 * STEP_MS, 10)],
    [*_steady("a", MIDNIGHT_MS + 5 * STEP_MS, 5), LATE],
]
"""What comes before the first run, and before the second; `LATE` too late for any roll-up."""

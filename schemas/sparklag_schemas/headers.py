"""CloudEvents 1.0 headers, binary content mode of the Kafka protocol binding."""

from __future__ import annotations

from datetime import datetime, timezone

from sparklag_schemas.codec import CONTENT_TYPE
from sparklag_schemas.lag_event import LagEvent
from sparklag_schemas.observation import Observation

Headers = list[tuple[str, bytes]]

OBSERVATION_TYPE = "sparklag.observation.v1"
LAG_EVENT_TYPE = "sparklag.lag.v1"


def observation_headers(observation: Observation) -> Headers:
    """Headers of a message on `processed-offsets`."""
    return _headers(
        event_id=observation.observation_id,
        event_type=OBSERVATION_TYPE,
        source=f"/sparklag/{observation.cluster}/driver/{observation.run_id}",
        time_ms=observation.observed_at,
        subject=observation.query_id,
    )


def lag_event_headers(event: LagEvent) -> Headers:
    """Headers of a message on `consumer-lag`."""
    return _headers(
        event_id=event.event_id,
        event_type=LAG_EVENT_TYPE,
        source=f"/sparklag/{event.cluster}/service",
        time_ms=event.measured_at,
        subject=event.query_id,
    )


def _headers(*, event_id: str, event_type: str, source: str, time_ms: int, subject: str) -> Headers:
    time = datetime.fromtimestamp(time_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", event_id.encode()),
        ("ce_source", source.encode()),
        ("ce_type", event_type.encode()),
        ("ce_time", time.replace("+00:00", "Z").encode()),
        ("ce_subject", subject.encode()),
        ("content-type", CONTENT_TYPE.encode()),
    ]

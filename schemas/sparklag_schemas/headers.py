"""CloudEvents 1.0 headers, binary content mode of the Kafka protocol binding."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import lru_cache

from sparklag_schemas.codec import JSON
from sparklag_schemas.lag_event import LagEvent
from sparklag_schemas.observation import Observation
from sparklag_schemas.partition_record import PartitionRecord

Headers = list[tuple[str, bytes]]

OBSERVATION_TYPE = "sparklag.observation.v1"
LAG_EVENT_TYPE = "sparklag.lag.v1"
PARTITION_TYPE = "sparklag.partition.v1"


def observation_headers(observation: Observation, content_type: str = JSON) -> Headers:
    """Headers of a message on `processed-offsets`."""
    return _headers(
        event_id=observation.observation_id,
        event_type=OBSERVATION_TYPE,
        source=f"/sparklag/{observation.cluster}/driver/{observation.run_id}",
        time_ms=observation.observed_at,
        subject=observation.query_id,
        content_type=content_type,
    )


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

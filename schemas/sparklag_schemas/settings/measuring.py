"""How lag is judged, shown and bounded."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from sparklag_schemas.settings.section import Seconds, Section, check_patterns
from sparklag_schemas.text.locations import shown_url
from sparklag_schemas.text.redaction import redact


class Thresholds(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a query needs attention."""

    allowed_lag: Annotated[int, Meta(ge=0)] = 0
    """A partition with at most this lag is neither stalled nor behind."""
    max_lag: Annotated[int, Meta(ge=0)] | None = None
    """WARN where a query lags by more. None: only where its lag grows."""
    max_time_lag_s: Seconds | None = None
    """WARN where the time lag is longer."""
    stall_factor: Annotated[float, Meta(ge=1)] = 3.0
    """STALL after this multiple of the usual batch duration, or of the time between batches."""
    stall_after_s: Seconds = 300.0
    """The shortest time after which a query is STALL."""
    window: Annotated[int, Meta(ge=2, le=100)] = 10
    """Batches (of a group: commits) that the rules look at."""
    min_headroom_s: Annotated[float, Meta(ge=0)] = 3600.0
    """WARN where the headroom is shorter."""


class TimeLagSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the time lag is measured."""

    sample: bool = True
    """Read the timestamp of the first unprocessed record from the log, if the topic may be read.
    Otherwise the time lag is computed from the growth of the log."""
    sample_interval_s: Seconds = 10.0
    """The shortest time between two samples of a query."""


class MetricsSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `/metrics` shows. Patterns are regular expressions of the whole name or id."""

    granularity: Literal["partition", "topic", "query"] = "partition"
    """The finest level of the series."""
    queries: Literal["all", "owned"] = "all"
    """Queries of every instance, or only those that this one measures."""
    include: list[str] = []
    """Queries to show. Empty: all."""
    exclude: list[str] = []
    """Queries that are not shown."""
    include_topics: list[str] = []
    """Topics to show. Empty: all. A topic that is not shown still counts in its query's sums."""
    exclude_topics: list[str] = []
    """Topics that are not shown."""
    compat: list[Literal["kafka-lag-exporter", "kafka_exporter"]] = []
    """Tools whose names and labels are shown too."""

    def __post_init__(self) -> None:
        check_patterns((*self.include, *self.exclude), "queries")
        check_patterns((*self.include_topics, *self.exclude_topics), "topics")


class HistorySettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Past lag, kept in memory for `GET /lag/{query}/history`."""

    memory_mb: Annotated[int, Meta(ge=1)] = 64
    """Memory for all queries together. Older samples are merged, then dropped."""
    keep_s: Seconds = 86_400.0
    """How far back the history goes."""


class LimitSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much foreign input is accepted; the rest is refused, counted and logged."""

    queries: Annotated[int, Meta(ge=1)] = 5_000
    """Queries that one instance measures, and queries in its view."""
    watched_partitions: Annotated[int, Meta(ge=1)] = 50_000
    """Partitions of all queries that one instance measures."""
    view_mb: Annotated[int, Meta(ge=1)] = 64
    """Size of the newest lag events of all queries, as JSON."""
    partitions: Annotated[int, Meta(ge=1, le=10_000_000)] = 100_000
    """Partitions of one query, and one more than the highest partition number."""
    batch_mb: Annotated[int, Meta(ge=1, le=1024)] = 16
    """Decompressed size of messages that were compressed together."""
    connections: Annotated[int, Meta(ge=10)] = 4_000
    """HTTP connections, live streams among them."""
    connections_per_address: Annotated[int, Meta(ge=1)] = 2_500
    """HTTP connections from one address. Behind a proxy all come from one."""
    request_s: Seconds = 10.0
    """How long a request may take to arrive."""
    response_s: Seconds = 30.0
    """How long a client may take to receive a response, or one write of a live stream.
    """
    unsent_mb: Annotated[int, Meta(ge=1)] = 16
    """Responses not yet received by clients; beyond it the slowest client is disconnected."""
    clock_ahead_s: Seconds = 300.0
    """How far a time in a message may be after the time at which its record was written."""


class LiveSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`GET /stream` and `GET /lag/{query}/stream`."""

    max_readers: Annotated[int, Meta(ge=0)] = 1_000
    """Streams open at the same time."""
    resume_mb: Annotated[int, Meta(ge=1)] = 8
    """Events kept for readers that reconnect."""


class OtlpSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Metrics pushed to an OpenTelemetry collector; needs `sparklag[otel]`."""

    endpoint: str | None = None
    """Address of OTLP over HTTP: `http://collector:4318/v1/metrics`. None: nothing is pushed."""
    interval_s: Seconds = 30.0
    """How often metrics are pushed."""

    def __post_init__(self) -> None:
        _check_endpoint("otlp", self.endpoint, "metrics")


class TracesSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trace of each batch, pushed to an OpenTelemetry collector. The service creates the spans,
    and needs `sparklag[otel]`; a driver adds the header `traceparent` to its messages."""

    endpoint: str | None = None
    """Address of OTLP over HTTP: `http://collector:4318/v1/traces`. None: nothing is traced."""
    interval_s: Seconds = 5.0
    """How often traces are pushed."""

    def __post_init__(self) -> None:
        _check_endpoint("traces", self.endpoint, "traces")


def _check_endpoint(section: str, endpoint: str | None, path: str) -> None:
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise ValueError(
            f"{section}.endpoint = {redact(shown_url(endpoint))!r}: takes the address of OTLP"
            f" over HTTP, like http://collector:4318/v1/{path}"
        )

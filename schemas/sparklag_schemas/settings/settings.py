"""All settings, as one frozen object."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal, TypeVar

from msgspec import Meta
from msgspec.structs import asdict

import sparklag_schemas.settings.connections as connections
import sparklag_schemas.settings.measuring as measuring
from sparklag_schemas.errors import SettingsError
from sparklag_schemas.settings.connections import ClusterAccess, ClusterSettings, KafkaSettings
from sparklag_schemas.settings.http_access import (
    HttpJwtSettings,
    HttpTlsSettings,
    HttpTokenSettings,
    ServiceClientSettings,
    is_loopback,
)
from sparklag_schemas.settings.section import (
    InstanceName,
    PageUrl,
    Port,
    Seconds,
    Section,
    SigningKey,
    check_patterns,
)
from sparklag_schemas.text.locations import shown_url
from sparklag_schemas.text.redaction import PublishExceptions

_Value = TypeVar("_Value")
_USUAL: Final = measuring.Thresholds()
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
LogFormat = Literal["auto", "console", "json"]
LOG_PACKAGES: Final = ("schemas", "kafka", "offsets", "service")
LOG_STAGES: Final = (
    *("intakes", "tracking", "enrichment", "evaluation", "publishing", "view"),
    *("access", "history", "live", "metrics", "rest", "mirror", "recording"),
)
"""Folders of the service that log."""


def _first_match(by_pattern: Mapping[str, _Value], names: Iterable[str | None]) -> _Value | None:
    for pattern, value in by_pattern.items():
        if any(name is not None and re.fullmatch(pattern, name) for name in names):
            return value
    return None


_SERVICE_URL: Final = re.compile(
    r"https?://(?:[\w.-]+|\[[\da-fA-F:.]+\])(?::(\d{1,5}))?(?:/[!\"$->A-~]*)?", re.ASCII
)
"""A URL without user, `?` and `#`."""


class Settings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings. Durations are seconds."""

    bootstrap_servers: str | None = None
    """Brokers that carry sparklag's topics, host:port with commas, with or without a prefix as in
    SASL_SSL://. None, in a driver: those the query reads from."""
    kafka: KafkaSettings = KafkaSettings()
    addresses: str = ""
    """Other names of those brokers, host:port with commas: as drivers see them, behind a proxy."""
    cluster: str = "default"
    """Alias of that Kafka cluster in every message."""
    clusters: dict[str, ClusterSettings] = {}
    """Clusters by alias that queries read from besides that one, each with its own security."""

    offsets_topic: str = "processed-offsets"
    """Topic of the observations that drivers publish."""
    lag_topic: str = "consumer-lag"
    """Topic of the lag events."""
    format: Literal["json", "avro"] = "json"
    """Format of the messages that are written. Both are read."""
    registry: connections.RegistrySettings = connections.RegistrySettings()

    own_partitions: list[str] = []
    """Names or ids of queries that have a partition of `lag_topic` to themselves: its last ones."""
    partition_records: bool = False
    """Also publish a flat record of each partition's lag to `partition_topic`."""
    partition_topic: str = "consumer-lag-partitions"
    """Topic of the partition records."""
    partition_heartbeat_s: Seconds = 60.0
    """A partition record is published at least this often, changed or not."""

    publish_exceptions: PublishExceptions = "redacted"
    """What the driver publishes of an exception that ended a query: its first line without possible
    secrets, its type, or nothing."""
    publish_locations: bool = True
    """Publish the locations of checkpoints, without user and query of a URL, and the address of
    Spark's UI."""

    signing_key: SigningKey | None = None
    """Shared by drivers and service: every message is signed with it, and others are refused. At
    least 16 characters. None: every message is accepted from anyone who may write to the topics."""
    accepted_signing_keys: list[SigningKey] = []
    """Further accepted keys, while `signing_key` is rotated."""
    signing: connections.SigningSettings = connections.SigningSettings()
    limits: measuring.LimitSettings = measuring.LimitSettings()

    create_topics: bool = True
    """Create missing topics where the rights allow it."""
    topic_partitions: Annotated[int, Meta(ge=1)] = 12
    """Partitions of a topic that is created: at most this many instances have work."""
    topic_replication_factor: Annotated[int, Meta(ge=1)] | None = None
    """Replicas of a topic that is created. None: 3, or as many as there are brokers."""

    group_id: str = "sparklag"
    """Consumer group of the instances that share the work."""
    queue_size: Annotated[int, Meta(ge=1)] = 10_000
    """Observations in the queue of a driver or the service; beyond it older ones are dropped."""

    refresh_interval_s: Seconds = 1.0
    """How often lag is measured again without any event."""
    refresh_intervals: dict[str, Seconds] = {}
    """How often the lag of a query is measured while it does not change: from `refresh_interval_s`
    to `heartbeat_s`. Keys are regular expressions of its whole name or id (or a group's id); the
    first match counts."""
    publish_interval_s: Annotated[float, Meta(ge=0)] = 1.0
    """A query's refreshed lag is published at most this often, to the nearest refresh."""
    heartbeat_s: Seconds = 10.0
    """Every query is published at least this often, changed or not; a driver reports at the same
    interval that its query runs."""
    earliest_interval_s: Seconds = 10.0
    """How often the log start offsets are read."""
    metadata_interval_s: Seconds = 10.0
    """How often partitions and leaders are read."""
    measure_timeout_s: Seconds = 5.0
    """Deadline of a response, and how long a query waits for a broker that was quick before."""
    latest_max_age_s: Seconds = 60.0
    """How long a latest offset is used while it cannot be read again; then it is unknown."""
    keep_s: Annotated[float, Meta(ge=0)] = 86_400.0
    """How long a query is measured and shown after its last message."""
    shutdown_timeout_s: Seconds = 10.0
    """Time to publish, commit and leave the group after SIGTERM."""

    checkpoints: connections.CheckpointSettings = connections.CheckpointSettings()
    groups: connections.GroupSettings = connections.GroupSettings()
    """Consumer groups of the home cluster."""

    store: connections.StoreSettings = connections.StoreSettings()
    mirror: connections.MirrorSettings = connections.MirrorSettings()

    time_lag: measuring.TimeLagSettings = measuring.TimeLagSettings()
    thresholds: dict[str, measuring.Thresholds] = {}
    """Thresholds by regular expression of a query's whole name or id, or of a group's id; the first
    match counts."""
    metrics: measuring.MetricsSettings = measuring.MetricsSettings()
    otlp: measuring.OtlpSettings = measuring.OtlpSettings()
    traces: measuring.TracesSettings = measuring.TracesSettings()
    history: measuring.HistorySettings = measuring.HistorySettings()
    live: measuring.LiveSettings = measuring.LiveSettings()

    service_url: str | None = None
    """In a driver: the service that its handle requests lag from, `http(s)://host:port`, with the
    path under which a proxy serves it. None: lag is read from `lag_topic`."""
    service_client: ServiceClientSettings = ServiceClientSettings()
    instance: InstanceName | None = None
    """Name of this instance of the service, on the page and in its lag events. None: its host and
    port."""
    http_host: str = "127.0.0.1"
    """Address that the service listens on."""
    http_port: Port = 8085
    """Port that the service listens on. 0: any free port."""
    http_hosts: list[str] = []
    """Host names (with a dot) of the service, `*` for any part. Requests with another Host are
    refused, since a foreign page could send them. Addresses and local names need no entry."""
    http_auth: Literal["token", "none"] = "token"
    """Who may use the REST interface, except `/health`. `token`: who has a token; where none are
    configured, everyone, but then the service listens on this machine only. `none`: everyone who
    reaches the port."""
    http_tokens: HttpTokenSettings = HttpTokenSettings()
    http_tls: HttpTlsSettings = HttpTlsSettings()
    http_monitoring_port: Annotated[int, Meta(ge=1, le=65_535)] | None = None
    """A further port of `sparklag serve`, for `/health` and `/metrics` alone."""
    http_jwt: HttpJwtSettings = HttpJwtSettings()
    http_forget: Literal["loopback", "anywhere", "off"] = "loopback"
    """Where `DELETE /lag/{query}` is accepted from. `loopback`: this machine, or a token with scope
    `admin`."""
    grafana_url: PageUrl | None = None
    """Address of Grafana, to whose dashboard `sparklag-query` the page links each query."""
    http_access_log: bool = False
    """Log a line for each request: method, path, status, duration, and who sent it."""
    log_level: LogLevel = "INFO"
    """The lowest level that is logged. Libraries log nothing below INFO."""
    log_levels: dict[str, LogLevel] = {}
    """Other levels for parts: `schemas`, `kafka`, `offsets`, `service` (with all its stages), or a
    stage of the service: `intakes`, `tracking`, `enrichment`, `evaluation`, `publishing`, `view`,
    `access`, `history`, `live`, `metrics`, `rest`, `mirror`, `recording`."""
    log_format: LogFormat = "auto"
    """Form of a service's log: `console`, lines to read, or `json`, an object a line; `auto` is
    `console` on a terminal, else `json`."""

    def __post_init__(self) -> None:
        if self.cluster in self.clusters:
            raise ValueError(
                f"clusters.{self.cluster} has the alias of the cluster that carries sparklag's"
                f" topics (cluster = {self.cluster!r}): one of them needs another"
            )
        if self.signing_key is None and (self.accepted_signing_keys or self.signing.keys):
            needing = "accepted_signing_keys" if self.accepted_signing_keys else "signing.keys"
            raise ValueError(f"{needing} needs signing_key, with which own messages are signed")
        taken = {self.signing_key, *self.accepted_signing_keys}
        for name, team in self.signing.keys.items():
            check_patterns(team.queries, f"queries (signing.keys.{name:.99})")
            if not taken.isdisjoint(keys := {team.key, *team.accepted}):
                raise ValueError(f"signing.keys.{name:.99} has a key of others: each has its own")
            taken |= keys
        if "" in self.clusters:
            raise ValueError("clusters: an alias is empty")
        connections.normalize_addresses(self, self.kafka)
        check_patterns(self.thresholds, "queries (thresholds)")
        check_patterns(self.refresh_intervals, "queries (refresh_intervals)")
        for part in self.log_levels:
            if part not in (*LOG_PACKAGES, *LOG_STAGES):
                parts = ", ".join((*LOG_PACKAGES, *LOG_STAGES))
                raise ValueError(f"log_levels.{part!r:.200} is no part: takes {parts}")
        for pattern, interval_s in self.refresh_intervals.items():
            if not self.refresh_interval_s <= interval_s <= self.heartbeat_s:
                raise ValueError(
                    f"refresh_intervals.{pattern!r:.200} = {interval_s:g}: takes"
                    f" refresh_interval_s ({self.refresh_interval_s:g}) to heartbeat_s"
                    f" ({self.heartbeat_s:g}), at which every query is measured and published"
                )
        if self.format == "avro" and self.registry.url is None:
            raise ValueError("format = 'avro' needs registry.url, of a schema registry")
        if self.service_url is not None:
            match = _SERVICE_URL.fullmatch(self.service_url)
            if match is None or int(match[1] or 1) not in range(1, 65_536):
                raise ValueError(
                    f"service_url = {shown_url(self.service_url)!r}: takes http(s)://host:port,"
                    " with a path where a proxy has one, and no more"
                )
        if self.http_auth == "none" and self._has_tokens:
            raise ValueError(
                "http_auth = 'none' lets in everyone, and http_tokens.file and http_jwt.issuer only"
                " those with a token: leave out one of them"
            )
        if len(set(self.own_partitions)) < len(self.own_partitions):
            raise ValueError("own_partitions names a query twice")

    def thresholds_of(self, *names: str | None) -> measuring.Thresholds:
        """The thresholds of a query with these names: its name and its id."""
        return _first_match(self.thresholds, names) or _USUAL

    def refresh_interval_of(self, *names: str | None) -> float:
        """Seconds between measurements of a query with these names while it does not change."""
        return _first_match(self.refresh_intervals, names) or self.refresh_interval_s

    def check_http(self) -> None:
        """Raises SettingsError if everyone who reaches the port would be let in, unasked."""
        if not (is_loopback(self.http_host) or self.needs_token or self.http_auth == "none"):
            raise SettingsError(
                f"http_host = {self.http_host!r} lets in everyone who reaches the port: set"
                " http_tokens.file (`sparklag tokens create`) or http_jwt.issuer, or say"
                " http_auth = 'none'"
            )

    @property
    def instance_name(self) -> str:
        """Name of this instance of the service."""
        return self.instance or f"{socket.gethostname()}:{self.http_port or os.getpid()}"

    @property
    def http_scheme(self) -> str:
        """The scheme of the service's URLs."""
        return "http" if self.http_tls.certfile is None else "https"

    @property
    def needs_token(self) -> bool:
        """True: a request needs a token."""
        return self.http_auth == "token" and self._has_tokens

    @property
    def _has_tokens(self) -> bool:
        return self.http_tokens.file is not None or self.http_jwt.issuer is not None

    @property
    def checkpoint_patterns(self) -> list[tuple[str, str]]:
        """Locations or patterns to watch, each with the alias of its queries' cluster."""
        return [
            *((pattern, self.cluster) for pattern in self.checkpoints.locations),
            *((p, alias) for alias, cluster in self.clusters.items() for p in cluster.checkpoints),
        ]

    @property
    def silent_after_s(self) -> float:
        """Time without a message after which a query is dead, or not measured: 3 heartbeats."""
        return 3 * self.heartbeat_s

    def resolved(self, bootstrap_servers: str | None = None) -> ResolvedSettings:
        """These settings with the home cluster's brokers: `bootstrap_servers`, else its own. Raises
        SettingsError where neither is set, and for addresses as `parse_addresses` does."""
        bootstrap_servers = bootstrap_servers or self.bootstrap_servers
        if not bootstrap_servers:
            raise SettingsError(
                "setting bootstrap_servers is not set: where Kafka is, as host:port"
                " (--bootstrap-servers, SPARKLAG_BOOTSTRAP_SERVERS or sparklag.toml)"
            )
        try:
            return ResolvedSettings(**asdict(self) | {"bootstrap_servers": bootstrap_servers})
        except ValueError as error:
            raise SettingsError(str(error)) from error


class ResolvedSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings with the address of Kafka, for all that connects to it."""

    bootstrap_servers: str

    @property
    def access(self) -> ClusterAccess:
        """Access to the cluster that carries sparklag's topics."""
        return ClusterAccess(self.bootstrap_servers, self.kafka)

    @property
    def every_cluster(self) -> dict[str, ClusterSettings]:
        """The clusters by alias, first the one that carries sparklag's topics."""
        home = ClusterSettings(
            bootstrap_servers=self.bootstrap_servers,
            kafka=self.kafka,
            addresses=self.addresses,
            checkpoints=self.checkpoints.locations,
            groups=self.groups,
        )
        return {self.cluster: home, **self.clusters}

"""All settings of sparklag, as one frozen object. See `settings_reading`."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

from msgspec import Meta, Struct

from sparklag_schemas.errors import SettingsError
from sparklag_schemas.redaction import HIDDEN, redact, redact_location, shown_url

Seconds = Annotated[float, Meta(gt=0)]
Port = Annotated[int, Meta(ge=0, le=65535)]

_Value = TypeVar("_Value")


def _check_patterns(patterns: Iterable[str], of_what: str) -> None:
    """Raises ValueError for the first that is no regular expression."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(
                f"{pattern!r:.200} is not a regular expression of {of_what}: {error}"
            ) from None


def _first_match(by_pattern: Mapping[str, _Value], names: Iterable[str | None]) -> _Value | None:
    """The value of the first pattern that one of `names` matches as a whole."""
    for pattern, value in by_pattern.items():
        if any(name is not None and re.fullmatch(pattern, name) for name in names):
            return value
    return None


_SERVICE_URL: Final = re.compile(
    r"https?://(?:[\w.-]+|\[[\da-fA-F:.]+\])(?::(\d{1,5}))?(?:/[!\"$->A-~]*)?", re.ASCII
)
"""No user, and no `?` or `#`."""


def _check_service_url(url: str) -> None:
    """Raises ValueError, without what may be a password."""
    match = _SERVICE_URL.fullmatch(url)
    if match is None or int(match[1] or 1) not in range(1, 65_536):
        raise ValueError(
            f"service_url = {shown_url(url)!r}: takes http(s)://host:port, with a path where a"
            " proxy has one, and no more"
        )


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings under one name."""

    def __repr__(self) -> str:
        """The values that are set, without secrets."""
        shown = ", ".join(
            f"{name}={shown_setting(name, value)!r}"
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not None
        )
        return f"{type(self).__name__}({shown})"


def shown_setting(name: str, value: Any) -> Any:
    """The value of a setting without secrets. `name` is the last part of the setting's name."""
    if not value:
        return value
    if name.endswith(("password", "signing_key", "signing_keys")):
        return HIDDEN
    if name == "storage":
        # fsspec's options: most of them are secrets.
        return dict.fromkeys(value, HIDDEN) if isinstance(value, dict) else HIDDEN
    if name in ("url", "endpoint", "bootstrap_servers", "service_url") and isinstance(value, str):
        return shown_url(value)
    if name in ("locations", "follow", "checkpoints") and isinstance(value, list):
        return [redact_location(v) if isinstance(v, str) else HIDDEN for v in value]
    return value


class TlsFiles(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The TLS files of a client, in PEM."""

    ssl_cafile: str | None = None
    """Certificates of the authorities that are trusted. None: the system's."""
    ssl_certfile: str | None = None
    """The client's certificate."""
    ssl_keyfile: str | None = None
    """Its private key."""
    ssl_key_password: str | None = None
    """Password of the private key."""

    @property
    def tls_files(self) -> str:
        """Those that are set, for errors that do not name the file."""
        return ", ".join(filter(None, (self.ssl_cafile, self.ssl_certfile, self.ssl_keyfile)))


class KafkaSettings(TlsFiles, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to connect to Kafka. The names are aiokafka's and librdkafka's."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Encryption and authentication of the connections."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    """How the client authenticates with a SASL protocol."""
    sasl_username: str | None = None
    """Required with a SASL protocol."""
    sasl_password: str | None = None
    """Required with a SASL protocol."""
    ssl_check_hostname: bool = True
    """Verify that the broker's certificate carries its host name."""
    trusted_brokers: list[str] = []
    """Hosts, or patterns with `*`, that may see the password besides those of `bootstrap_servers`,
    where TLS does not verify them: brokers by the names that the cluster reports."""
    client_id: str = "sparklag"
    """Name of the client in the brokers' logs and quotas."""
    request_timeout_s: Seconds = 10.0
    """Deadline of a request."""

    def __post_init__(self) -> None:
        if self.security_protocol.startswith("SASL") and not (
            self.sasl_username and self.sasl_password
        ):
            raise ValueError(
                f"security_protocol={self.security_protocol} needs sasl_username and sasl_password"
            )

    @property
    def has_secret(self) -> bool:
        """Whether connecting sends credentials."""
        return self.security_protocol.startswith("SASL") or self.ssl_certfile is not None


class RegistrySettings(TlsFiles, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schema registry that speaks Confluent's API. Messages in Avro need it; needs
    `sparklag[avro]`."""

    url: str | None = None
    """`https://registry:8081`; several with commas."""
    username: str | None = None
    """User of the registry. None: no authentication."""
    password: str | None = None
    """Password of that user."""
    subjects: Literal["topic", "record", "topic-record"] = "topic"
    """How a schema's subject is named: `<topic>-value`, `<record>` or `<topic>-<record>`."""
    compatibility: Literal[
        "BACKWARD",
        "BACKWARD_TRANSITIVE",
        "FORWARD",
        "FORWARD_TRANSITIVE",
        "FULL",
        "FULL_TRANSITIVE",
        "NONE",
    ] = "BACKWARD"
    """Set for a subject that has no level of its own."""
    register: bool = True
    """Register schemas that are missing. False: they are registered by others."""
    timeout_s: Seconds = 5.0
    """Deadline of a request."""

    def __post_init__(self) -> None:
        for url in (self.url or "").split(","):
            if self.url is not None and not url.strip().startswith(("http://", "https://")):
                raise ValueError(f"registry.url = {shown_url(url)!r}: takes http(s)://host:port")
            if "@" in url or shown_url(url) != url:
                raise ValueError(
                    f"registry.url = {shown_url(url)!r} is more than http(s)://host:port: a user is"
                    " set by registry.username and registry.password"
                )


class CheckpointSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Checkpoints that the service reads by itself."""

    locations: list[str] = []
    """Paths, or patterns with `*`, of queries that read from the home cluster."""
    follow: list[str] = []
    """A checkpoint location that a driver reports is watched too if it begins with one of these."""
    interval_s: Seconds = 5.0
    """How often each is read."""
    find_interval_s: Seconds = 60.0
    """How often patterns are searched for new checkpoints."""
    timeout_s: Seconds = 30.0
    """Deadline of one read."""
    storage: dict[str, dict[str, Any]] = {}
    """fsspec's options by the scheme of a location: `storage.s3.endpoint_url`."""


class GroupSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ordinary consumer groups whose lag is measured too. Patterns are regular expressions of whole
    group ids."""

    allow: list[str] = []
    """Empty: no group is measured."""
    deny: list[str] = []
    """Groups that are not measured although `allow` matches."""
    interval_s: Seconds = 5.0
    """How often all committed offsets are read; those of a group that commits, within a second."""
    find_interval_s: Seconds = 30.0
    """How often the list of groups is read."""
    evaluator: Literal["sparklag", "burrow"] = "sparklag"
    """Whose rules judge the status of a group: those of queries, or Burrow's own."""

    def __post_init__(self) -> None:
        _check_patterns((*self.allow, *self.deny), "group ids")


class StoreSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The offset store: the offsets of every batch, kept outside Spark."""

    url: str | None = None
    """`sqlite:///offsets.db`, `postgresql://user:password@host/database`, `mysql://`, `mariadb://`,
    `mongodb://`. None: nothing is kept."""
    keep_s: Seconds | None = 90 * 86_400.0
    """How long a batch is kept; the last batch of a query always is. None: for ever."""
    keep_batches: Annotated[int, Meta(ge=1)] | None = None
    """The most batches of a query. None: any number."""


class MirrorSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Processed offsets committed to Kafka consumer groups, for tools that read only those."""

    queries: list[str] = []
    """Regular expressions of whole names or ids. Empty: nothing is committed."""
    exclude: list[str] = []
    """Queries whose offsets are not committed although `queries` matches."""
    group: str = "spark-{query}"
    """The group of a query. `{query}` is its name, or its id where it has none; `{query_id}` its
    id, `{cluster}` the alias of the Kafka cluster it reads from. It begins with text of yours:
    queries are named by their drivers, and could take the name of another team's group."""
    interval_s: Seconds = 5.0
    """How often what has changed is committed."""

    def __post_init__(self) -> None:
        _check_patterns((*self.queries, *self.exclude), "queries (mirror)")
        try:
            groups = {self.group.format(query=q, query_id=q, cluster="") for q in ("a", "b")}
        except (KeyError, IndexError, ValueError, AttributeError):
            groups = set()
        if len(groups) != 2:
            raise ValueError(
                f"mirror.group = {self.group!r}: it takes {{query}} or {{query_id}}, so that each"
                " query has a group of its own, and {cluster}"
            )
        if not next(iter(string.Formatter().parse(self.group)))[0]:
            raise ValueError(
                f"mirror.group = {self.group!r}: it begins with a text of yours, as in"
                " 'spark-{query}': whoever names a query could name another's group"
            )


class Thresholds(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a query needs attention."""

    allowed_lag: Annotated[int, Meta(ge=0)] = 0
    """A partition that lags by no more is neither stalled nor behind."""
    max_lag: Annotated[int, Meta(ge=0)] | None = None
    """WARN where a query lags by more. None: only where its lag grows."""
    max_time_lag_s: Seconds | None = None
    """WARN where the oldest unprocessed record is older."""
    stall_factor: Annotated[float, Meta(ge=1)] = 3.0
    """STALL after so many times the usual duration of a batch, or the usual time between two."""
    stall_after_s: Seconds = 300.0
    """And not earlier than after so long."""
    window: Annotated[int, Meta(ge=2, le=100)] = 10
    """Batches (of a group: commits) that the rules look at."""
    min_headroom_s: Annotated[float, Meta(ge=0)] = 3600.0
    """WARN where retention deletes unread records within that time."""


class TimeLagSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the age of the first unprocessed record is measured."""

    sample: bool = True
    """Read its timestamp from the log, where the topic may be read; else it is computed from when
    the log grew."""
    sample_interval_s: Seconds = 10.0
    """How often at most for each query."""


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
        _check_patterns((*self.include, *self.exclude), "queries")
        _check_patterns((*self.include_topics, *self.exclude_topics), "topics")


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
    clock_ahead_s: Seconds = 300.0
    """How much later than its record was written a time in a message may be."""


class LiveSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`GET /stream` and `GET /lag/{query}/stream`."""

    max_readers: Annotated[int, Meta(ge=0)] = 2_000
    """Streams open at the same time."""
    resume_mb: Annotated[int, Meta(ge=1)] = 8
    """Events kept for readers that come back."""


class OtlpSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Metrics pushed to an OpenTelemetry collector; needs `sparklag[otel]`."""

    endpoint: str | None = None
    """Address of OTLP over HTTP: `http://collector:4318/v1/metrics`. None: nothing is pushed."""
    interval_s: Seconds = 30.0
    """How often metrics are pushed."""

    def __post_init__(self) -> None:
        if self.endpoint is not None and not self.endpoint.startswith(("http://", "https://")):
            raise ValueError(
                f"otlp.endpoint = {redact(shown_url(self.endpoint))!r}: takes the address of OTLP"
                " over HTTP, like http://collector:4318/v1/metrics"
            )


class ClusterAccess(NamedTuple):
    """How a Kafka cluster is reached."""

    bootstrap_servers: str
    kafka: KafkaSettings = KafkaSettings()


class ClusterSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Kafka cluster that queries read from, other than the one that carries sparklag's topics."""

    bootstrap_servers: str
    """Its brokers, as host:port with commas."""
    kafka: KafkaSettings = KafkaSettings()
    """How to connect to it."""
    addresses: str = ""
    """Other names of its brokers, host:port with commas: as drivers see them, behind a proxy."""
    checkpoints: list[str] = []
    """Paths or patterns of checkpoints whose queries read from this cluster."""
    groups: GroupSettings = GroupSettings()
    """Consumer groups of this cluster that are measured."""

    @property
    def access(self) -> ClusterAccess:
        """How it is reached."""
        return ClusterAccess(self.bootstrap_servers, self.kafka)


class Settings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings. Durations are seconds."""

    bootstrap_servers: str | None = None
    """Brokers that carry sparklag's topics. In a driver, None takes those the query reads from."""
    kafka: KafkaSettings = KafkaSettings()
    addresses: str = ""
    """Other names of those brokers, host:port with commas: as drivers see them, behind a proxy."""
    cluster: str = "default"
    """Alias of that Kafka cluster in every message."""
    clusters: dict[str, ClusterSettings] = {}
    """By alias: clusters that queries read from besides that one, each with its own security."""

    offsets_topic: str = "processed-offsets"
    """Topic of the observations that drivers publish."""
    lag_topic: str = "consumer-lag"
    """Topic of the lag events."""
    format: Literal["json", "avro"] = "json"
    """Format of the messages that are written. Both are read."""
    registry: RegistrySettings = RegistrySettings()

    own_partitions: list[str] = []
    """Names or ids of queries that have a partition of `lag_topic` to themselves: its last ones."""
    partition_records: bool = False
    """Publish each partition's lag by itself too, flat, to `partition_topic`."""
    partition_topic: str = "consumer-lag-partitions"
    """Topic of the partition records."""
    partition_heartbeat_s: Seconds = 60.0
    """A partition record is published at least this often, changed or not."""

    publish_exceptions: Literal["redacted", "type", "none"] = "redacted"
    """What leaves the driver of an exception that ended a query: its first line without what may be
    a secret, its type, or nothing."""
    publish_locations: bool = True
    """Publish the locations of checkpoints, without user and query of a URL."""

    signing_key: str | None = None
    """Shared by drivers and service: every message is signed with it, and others are refused. None:
    every message is accepted from anyone who may write to the topics."""
    accepted_signing_keys: list[str] = []
    """Also accepted, while `signing_key` is changed."""
    limits: LimitSettings = LimitSettings()

    create_topics: bool = True
    """Create missing topics where the rights allow it."""
    topic_partitions: Annotated[int, Meta(ge=1)] = 12
    """Partitions of a topic that is created: at most so many instances have work."""
    topic_replication_factor: Annotated[int, Meta(ge=1)] | None = None
    """Replicas of a topic that is created. None: 3, or as many as there are brokers."""

    group_id: str = "sparklag"
    """Consumer group of the instances that share the work."""
    queue_size: Annotated[int, Meta(ge=1)] = 10_000
    """Observations held, in a driver or the service, before older ones of a query are dropped."""

    refresh_interval_s: Seconds = 1.0
    """How often lag is measured again without any event."""
    refresh_intervals: dict[str, Seconds] = {}
    """By regular expression of a query's whole name or id (a group's id), the first that fits: how
    often its lag is measured while it does not change; from `refresh_interval_s` to `heartbeat_s`.
    """
    publish_interval_s: Annotated[float, Meta(ge=0)] = 1.0
    """A query's refreshed lag is published at most this often, to the nearest refresh."""
    heartbeat_s: Seconds = 10.0
    """Every query is published at least this often, changed or not; a driver reports as often that
    its query runs."""
    earliest_interval_s: Seconds = 10.0
    """How often the log start offsets are read."""
    metadata_interval_s: Seconds = 10.0
    """How often partitions and leaders are read."""
    measure_timeout_s: Seconds = 5.0
    """Deadline of a response, and how long a query waits for a broker that was quick before."""
    latest_max_age_s: Seconds = 60.0
    """How long a latest offset that cannot be read again still counts; then it is unknown."""
    keep_s: Annotated[float, Meta(ge=0)] = 86_400.0
    """How long a query that was terminated is still measured and shown."""
    shutdown_timeout_s: Seconds = 10.0
    """Time to publish, commit and leave the group after SIGTERM."""

    checkpoints: CheckpointSettings = CheckpointSettings()
    groups: GroupSettings = GroupSettings()
    """Of the home cluster."""

    store: StoreSettings = StoreSettings()
    mirror: MirrorSettings = MirrorSettings()

    time_lag: TimeLagSettings = TimeLagSettings()
    thresholds: dict[str, Thresholds] = {}
    """By regular expression of a query's whole name or id (a group's id); the first that fits."""
    metrics: MetricsSettings = MetricsSettings()
    otlp: OtlpSettings = OtlpSettings()
    history: HistorySettings = HistorySettings()
    live: LiveSettings = LiveSettings()

    service_url: str | None = None
    """In a driver: the service that its handle requests lag from, `http(s)://host:port`, with the
    path under which a proxy serves it. None: lag is read from `lag_topic`."""
    http_host: str = "127.0.0.1"
    """Address that the service listens on."""
    http_port: Port = 8085
    """Port that the service listens on. 0: any free port."""
    http_hosts: list[str] = []
    """Names with a dot under which it is reached, `*` for any part. Requests with another Host are
    refused, since a foreign page could send them. Addresses and local names need no entry."""
    http_forget: Literal["loopback", "anywhere", "off"] = "loopback"
    """From where `DELETE /lag/{query}` is taken."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Least severe messages that are logged. Libraries log nothing below INFO."""

    def __post_init__(self) -> None:
        if self.cluster in self.clusters:
            raise ValueError(
                f"clusters.{self.cluster} has the alias of the cluster that carries sparklag's"
                f" topics (cluster = {self.cluster!r}): one of them needs another"
            )
        if "" in self.clusters:
            raise ValueError("clusters: an alias is empty")
        _check_patterns(self.thresholds, "queries (thresholds)")
        _check_patterns(self.refresh_intervals, "queries (refresh_intervals)")
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
            _check_service_url(self.service_url)
        if len(set(self.own_partitions)) < len(self.own_partitions):
            raise ValueError("own_partitions names a query twice")

    def thresholds_of(self, *names: str | None) -> Thresholds:
        """The thresholds of a query with these names: its name and its id."""
        return _first_match(self.thresholds, names) or _USUAL

    def refresh_interval_of(self, *names: str | None) -> float:
        """How often a query with these names is measured while its lag does not change."""
        return _first_match(self.refresh_intervals, names) or self.refresh_interval_s

    @property
    def checkpoint_patterns(self) -> list[tuple[str, str]]:
        """Locations or patterns to watch, each with the alias of its queries' cluster."""
        return [
            *((pattern, self.cluster) for pattern in self.checkpoints.locations),
            *((p, alias) for alias, cluster in self.clusters.items() for p in cluster.checkpoints),
        ]

    @property
    def silent_after_s(self) -> float:
        """A query without a message for so long is dead, or nobody measures it."""
        return _SILENT_HEARTBEATS * self.heartbeat_s

    def resolved(self, bootstrap_servers: str | None = None) -> ResolvedSettings:
        """These settings with the home cluster's brokers: `bootstrap_servers`, else their own.

        Raises SettingsError where neither is set.
        """
        bootstrap_servers = bootstrap_servers or self.bootstrap_servers
        if not bootstrap_servers:
            raise SettingsError(
                "setting bootstrap_servers is not set: where Kafka is, as host:port"
                " (--bootstrap-servers, SPARKLAG_BOOTSTRAP_SERVERS or sparklag.toml)"
            )
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return ResolvedSettings(**{**values, "bootstrap_servers": bootstrap_servers})


class ResolvedSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings with the address of Kafka, for all that connects to it."""

    bootstrap_servers: str

    @property
    def access(self) -> ClusterAccess:
        """How the cluster that carries sparklag's topics is reached."""
        return ClusterAccess(self.bootstrap_servers, self.kafka)

    @property
    def every_cluster(self) -> dict[str, ClusterSettings]:
        """By alias; the cluster that carries sparklag's topics is the first."""
        home = ClusterSettings(
            bootstrap_servers=self.bootstrap_servers,
            kafka=self.kafka,
            addresses=self.addresses,
            checkpoints=self.checkpoints.locations,
            groups=self.groups,
        )
        return {self.cluster: home, **self.clusters}


_SILENT_HEARTBEATS = 3
_USUAL = Thresholds()

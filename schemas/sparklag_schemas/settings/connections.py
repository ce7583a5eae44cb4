"""Settings of Kafka, the schema registry, checkpoints, consumer groups and the offset store."""

from __future__ import annotations

import ssl
import string
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta
from msgspec.structs import force_setattr

from sparklag_schemas.errors import SettingsError
from sparklag_schemas.settings.addresses import joined, parse_addresses
from sparklag_schemas.settings.section import (
    Seconds,
    Section,
    SecureUrl,
    SigningKey,
    check_patterns,
)
from sparklag_schemas.text.locations import shown_url


class TlsFiles(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The TLS files of a client, in PEM."""

    ssl_cafile: str | None = None
    """Certificates of the authorities that are trusted. None: the system's."""
    ssl_certfile: str | None = None
    """The client's certificate."""
    ssl_keyfile: str | None = None
    """The client's private key."""
    ssl_key_password: str | None = None
    """Password of the private key."""

    def client_context(self, section: str) -> ssl.SSLContext:
        """A context with these files. Raises SettingsError."""
        try:
            # Without a file: the system's certificates, not those of httpx.
            context = ssl.create_default_context(cafile=self.ssl_cafile)
            if self.ssl_certfile is not None:
                # Without a password OpenSSL would ask the terminal for one.
                password = self.ssl_key_password or ""
                context.load_cert_chain(self.ssl_certfile, self.ssl_keyfile, lambda: password)
        except (ValueError, OSError) as error:
            # ssl.SSLError is an OSError. None of them names the file.
            files = ", ".join(filter(None, (self.ssl_cafile, self.ssl_certfile, self.ssl_keyfile)))
            raise SettingsError(f"{section}, TLS files ({files}): {error}") from error
        return context


class KafkaSettings(TlsFiles, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to connect to Kafka. The names are aiokafka's and librdkafka's."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Encryption and authentication of the connections."""
    sasl_mechanism: Literal[
        "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"
    ] = "PLAIN"
    """How the client authenticates with a SASL protocol. AWS_MSK_IAM needs `sparklag[msk]`."""
    sasl_username: str | None = None
    """Required with PLAIN and SCRAM."""
    sasl_password: str | None = None
    """Required with PLAIN and SCRAM, or its file."""
    sasl_password_file: str | None = None
    """A file with the password, instead of it; read again at each login."""
    sasl_oauthbearer_token_endpoint_url: SecureUrl | None = None
    """Where OAUTHBEARER gets its tokens, by the grant of client credentials: `https://`, or
    `http://` on loopback."""
    sasl_oauthbearer_client_id: str | None = None
    """Required with a token endpoint."""
    sasl_oauthbearer_client_secret: str | None = None
    """Required with a token endpoint, or its file."""
    sasl_oauthbearer_client_secret_file: str | None = None
    """A file with the client's secret, instead of it; read again for each token."""
    sasl_oauthbearer_scope: str | None = None
    """The scope that is requested. None: the endpoint's default."""
    sasl_oauthbearer_cafile: str | None = None
    """Certificates of the authorities trusted for the token endpoint. None: the system's."""
    sasl_oauthbearer_token_file: str | None = None
    """A file with the token, instead of an endpoint; read again at each login."""
    sasl_oauthbearer_extensions: dict[
        Annotated[str, Meta(pattern=r"^[A-Za-z]+$")],
        Annotated[str, Meta(pattern=r"^[\x20-\x7e]+$")],
    ] = {}
    """Sent with the token (RFC 7628): `logicalCluster`, `identityPoolId`. Not by variables, which
    have no small letters."""
    sasl_aws_region: (
        Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,40}$", description="a region like eu-west-1")]
        | None
    ) = None
    """The cluster's region. Required with AWS_MSK_IAM."""
    ssl_check_hostname: bool = True
    """Verify that the broker's certificate carries its host name."""
    trusted_brokers: list[str] = []
    """Brokers that get the password although TLS does not verify them, besides those of
    `bootstrap_servers`: host names as the cluster reports them, or patterns with `*`."""
    client_id: str = "sparklag"
    """Name of the client in the brokers' logs and quotas."""
    request_timeout_s: Seconds = 10.0
    """Deadline of a request."""
    compression: Literal["zstd", "gzip", "lz4", "none"] = "zstd"
    """Of published records, as Kafka's `compression.type`. A broker that refuses it gets
    uncompressed records."""

    def __post_init__(self) -> None:
        needed = ["sasl_username", "sasl_password"]
        if self.sasl_mechanism == "AWS_MSK_IAM":
            needed = ["sasl_aws_region"]
        elif self.sasl_mechanism == "OAUTHBEARER":
            parts = ("token_endpoint_url", "client_id", "client_secret")
            by_file = self.sasl_oauthbearer_token_file is not None
            needed = [] if by_file else [f"sasl_oauthbearer_{part}" for part in parts]
        missing = [n for n in needed if not (getattr(self, n) or getattr(self, f"{n}_file", None))]
        if missing and self.security_protocol.startswith("SASL"):
            raise ValueError(
                f"security_protocol={self.security_protocol} with {self.sasl_mechanism} needs"
                f" {' and '.join(missing)}; a secret is best in the environment, or in a file"
            )

    @property
    def has_secret(self) -> bool:
        """True: connecting sends credentials."""
        return self.security_protocol.startswith("SASL") or self.ssl_certfile is not None


class TeamKey(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `signing_key` of a team's drivers, as the service has it."""

    key: SigningKey
    """Reports only the team's queries. No other team has it."""
    accepted: list[SigningKey] = []
    """Further accepted keys of the team, while `key` is rotated."""
    queries: Annotated[list[str], Meta(min_length=1)]
    """Regular expressions of the whole names of its queries; without a name, of the id."""


class SigningSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Signing by teams."""

    keys: dict[str, TeamKey] = {}
    """Keys by team. They need `signing_key`, which is then the service's alone."""


class RegistrySettings(TlsFiles, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schema registry with Confluent's API, for messages in Avro; needs `sparklag[avro]`."""

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
    """The compatibility level that a subject without one gets."""
    register: bool = True
    """Register schemas that are missing. False: they must be registered beforehand."""
    timeout_s: Seconds = 5.0
    """Deadline of a request."""

    def __post_init__(self) -> None:
        if (self.username is None) != (self.password is None):
            raise ValueError("registry.username and registry.password need each other")
        for url in (self.url or "").split(","):
            if self.url is not None and not url.strip().startswith(("http://", "https://")):
                raise ValueError(f"registry.url = {shown_url(url)!r}: takes http(s)://host:port")
            if "@" in url or shown_url(url) != url:
                raise ValueError(
                    f"registry.url = {shown_url(url)!r} is more than http(s)://host:port: a user is"
                    " set by registry.username and registry.password"
                )


class ClusterAccess(NamedTuple):
    """Addresses and credentials of a Kafka cluster."""

    bootstrap_servers: str
    kafka: KafkaSettings = KafkaSettings()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The host and port of each. Raises SettingsError as `parse_addresses` does ValueError."""
        try:
            return parse_addresses(
                self.bootstrap_servers, security_protocol=self.kafka.security_protocol
            )
        except ValueError as error:
            raise SettingsError(str(error)) from error


class CheckpointSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Checkpoints that the service reads by itself."""

    locations: list[str] = []
    """Paths, or patterns with `*`, of queries that read from the home cluster."""
    follow: list[str] = []
    """A checkpoint location that a driver reports is watched too if it begins with one of these."""
    interval_s: Seconds = 5.0
    """How often each checkpoint is read."""
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
    """How often all committed offsets are read. New commits are read within a second."""
    find_interval_s: Seconds = 30.0
    """How often the list of groups is read."""
    evaluator: Literal["sparklag", "burrow"] = "sparklag"
    """Whose rules judge the status of a group: those of queries, or Burrow's own."""

    def __post_init__(self) -> None:
        check_patterns((*self.allow, *self.deny), "group ids")


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
    id, `{cluster}` the alias of the Kafka cluster it reads from. It must begin with fixed text:
    drivers name their queries, and a name could be that of another team's group."""
    interval_s: Seconds = 5.0
    """How often changed offsets are committed."""

    def __post_init__(self) -> None:
        check_patterns((*self.queries, *self.exclude), "queries (mirror)")
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


def normalize_addresses(section: Section, kafka: KafkaSettings) -> None:
    """Take the prefixes off addresses. Raises ValueError as `parse_addresses` does."""
    protocols = {"bootstrap_servers": kafka.security_protocol, "addresses": None}
    for setting, protocol in protocols.items():
        if listed := getattr(section, setting):
            force_setattr(section, setting, joined(parse_addresses(listed, setting, protocol)))


class ClusterSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Kafka cluster that queries read from, other than the one that carries sparklag's topics."""

    bootstrap_servers: str
    """Its brokers, host:port with commas, with or without a prefix as in SASL_SSL://."""
    kafka: KafkaSettings = KafkaSettings()
    """How to connect to it."""
    addresses: str = ""
    """Other names of its brokers, host:port with commas: as drivers see them, behind a proxy."""
    checkpoints: list[str] = []
    """Paths or patterns of checkpoints whose queries read from this cluster."""
    groups: GroupSettings = GroupSettings()
    """Consumer groups of this cluster that are measured."""

    def __post_init__(self) -> None:
        normalize_addresses(self, self.kafka)

    @property
    def access(self) -> ClusterAccess:
        """Access to the cluster."""
        return ClusterAccess(self.bootstrap_servers, self.kafka)

"""How Kafka and a schema registry are reached."""

from __future__ import annotations

from typing import Literal, NamedTuple

from sparklag_schemas.settings.section import Seconds, Section
from sparklag_schemas.text.redaction import shown_url


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
    """How a Kafka cluster is reached."""

    bootstrap_servers: str
    kafka: KafkaSettings = KafkaSettings()

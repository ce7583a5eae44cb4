"""Settings of who may use the REST interface, and of how sparklag's own clients log in to it."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Final, Literal

from msgspec import Meta

from sparklag_schemas.settings.connections import TlsFiles
from sparklag_schemas.settings.section import Section, SecureUrl, check_patterns

Scope = Literal["lag", "metrics", "offsets", "admin"]
SCOPES: Final[tuple[Scope, ...]] = ("lag", "metrics", "offsets", "admin")


def is_loopback(host: str) -> bool:
    """True: only this machine reaches the host."""
    try:
        return host.lower() == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class HttpTokenSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bearer tokens of the REST interface."""

    file: str | None = None
    """The file that `sparklag tokens create` writes. It has hashes of the tokens, their scopes and
    limits, and is read again when it changes. None: no tokens."""
    requests_per_s: Annotated[float, Meta(gt=0)] = 100.0
    """Requests of one token, in bursts of ten seconds' worth; more get 429. Also the limit of a JWT
    subject. A tenth of it limits an address whose requests are refused."""


class HttpTlsSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TLS of the REST interface, 1.2 or later. The files are PEM, and read again when they
    change."""

    certfile: str | None = None
    """The certificate with its chain. None: no TLS."""
    keyfile: str | None = None
    """Its private key. None: in `certfile`."""
    key_password: str | None = None
    """Password of the private key."""
    client_cafile: str | None = None
    """Authorities whose certificates clients must have, except on `http_monitoring_port`. None:
    clients need no certificate."""

    def __post_init__(self) -> None:
        if self.certfile is None and (self.keyfile or self.key_password or self.client_cafile):
            raise ValueError("http_tls.keyfile, key_password and client_cafile need certfile")


class HttpGrantSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a token or one value of the claim of a JWT grants."""

    scopes: Annotated[list[Scope], Meta(min_length=1)]
    """`lag`, `metrics`, `offsets`, `admin`."""
    queries: list[str] = []
    """Queries that they are for: regular expressions of whole names or ids. Empty: all."""
    clusters: list[str] = []
    """Clusters that they are for, by alias. Empty: all."""

    def __post_init__(self) -> None:
        check_patterns(self.queries, "queries")


class HttpJwtSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tokens of an OpenID Connect issuer (JWTs) for the REST interface."""

    issuer: SecureUrl | None = None
    """The issuer, exactly as its tokens have it: https, or http on this machine. None: no JWTs."""
    audiences: list[str] = []
    """Audiences: a token must be for one of them."""
    jwks_url: SecureUrl | None = None
    """The issuer's keys. None: where its `.well-known/openid-configuration` says."""
    ssl_cafile: str | None = None
    """PEM file with the CA of the issuer. None: the system's CAs."""
    claim: str = "scope"
    """The claim that says what a token may do: a list, or a text with spaces between values."""
    grants: dict[str, HttpGrantSettings] = {}
    """What values of the claim grant, such as groups: `scopes`, for all queries or for `queries`
    (patterns) and `clusters`. Other values grant nothing. Empty: `sparklag:lag` grants `lag`, and
    so on."""

    def __post_init__(self) -> None:
        if self.issuer is not None and not self.audiences:
            raise ValueError("http_jwt.issuer needs http_jwt.audiences: whom its tokens are for")


class ServiceClientSettings(TlsFiles, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How `sparklag lag` and the like, and drivers with `service_url`, reach the service."""

    token: str | None = None
    """The bearer token. It is best in the environment, or in a secret file."""
    token_file: str | None = None
    """A file with the token, instead of it; read again for each request."""
    allow_http: bool = False
    """Send the token over `http://` to other machines too: for a network that encrypts itself."""

    def __post_init__(self) -> None:
        if self.token is not None and self.token_file is not None:
            raise ValueError(
                "service_client.token and service_client.token_file exclude each other"
            )

"""Options of every connection to Kafka, trusted brokers, and the causes of failed connections."""

from __future__ import annotations

import asyncio
import logging
import ssl
from fnmatch import fnmatchcase
from typing import Any, Final

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    IllegalSaslStateError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

from sparklag_kafka.connection import open_connection
from sparklag_kafka.errors import KAFKA_FAILURES, LoginUnavailable, UntrustedBroker, error_text
from sparklag_kafka.login import TOKEN_MECHANISMS, Login
from sparklag_kafka.protocol.requests import require_needed
from sparklag_schemas.errors import RegistryError
from sparklag_schemas.settings import ClusterAccess, KafkaSettings
from sparklag_schemas.settings.addresses import joined
from sparklag_schemas.text.printable import printable

_log = logging.getLogger("sparklag.kafka")
_PROBE_TIMEOUT_S = 5.0
_TLS_ALERT: Final = 0x1503
"""The first bytes of a TLS alert, where Kafka has the size of a response."""


_RENEW: Final = "renew it on the broker, or correct the clock"
_NAME: Final = "connect to a name in the certificate, or add this name to it"
_REMEDIES: Final = {9: _RENEW, 10: _RENEW, 62: _NAME, 64: _NAME}
"""Remedies by OpenSSL's X509_V_ERR number: not yet valid, expired, other host, other address."""


class TrustedBrokers:
    """The brokers that may get the password: those that the settings name or TLS authenticates. A
    cluster's metadata may name any host."""

    def __init__(self, access: ClusterAccess) -> None:
        kafka = access.kafka
        shows_itself = kafka.security_protocol == "SASL_SSL" and kafka.ssl_check_hostname
        self._any = shows_itself or not kafka.security_protocol.startswith("SASL")
        self._hosts = {host.lower() for host, _ in access.addresses}
        self._patterns = [pattern.lower() for pattern in kafka.trusted_brokers]

    def require(self, host: str) -> None:
        """Raises UntrustedBroker."""
        name = host.lower()
        if self._any or name in self._hosts:
            return
        if not any(fnmatchcase(name, pattern) for pattern in self._patterns):
            raise UntrustedBroker(
                f"no setting names {printable(host)}, which the cluster lists as a broker: no"
                " password is sent to it; add it to kafka.trusted_brokers, or use SASL_SSL"
            )

    def guard(self, client: AIOKafkaClient) -> None:
        """Keep `client` from connecting to other brokers."""
        connect = client._get_conn
        reported: set[str] = set()

        async def connect_to_trusted(node_id: object, **options: Any) -> Any:
            broker = client.cluster.broker_metadata(node_id)
            if broker is not None:
                try:
                    self.require(broker.host)
                except UntrustedBroker as error:
                    if broker.host not in reported:
                        reported.add(broker.host)
                        _log.error("%s", error)
                    return None
            return await connect(node_id, **options)

        client._get_conn = connect_to_trusted


def client_options(access: ClusterAccess) -> dict[str, Any]:
    """Keyword arguments for any aiokafka client. Raises SettingsError for malformed addresses, and
    for unusable TLS files."""
    return {"bootstrap_servers": joined(access.addresses), **connection_options(access)}


def connection_options(access: ClusterAccess) -> dict[str, Any]:
    """The options of `client_options` without the addresses: for `open_connection`."""
    kafka = access.kafka
    login = Login(kafka)
    options: dict[str, Any] = {
        "client_id": kafka.client_id,
        "request_timeout_ms": int(kafka.request_timeout_s * 1000),
        "security_protocol": kafka.security_protocol,
        # How KafkaConnection gets it, whatever the mechanism; what follows is as of now.
        "sasl_oauth_token_provider": login,
    }
    if kafka.security_protocol.endswith("SSL"):
        options["ssl_context"] = login.ssl_context()
    if kafka.security_protocol.startswith("SASL"):
        by_token = kafka.sasl_mechanism in TOKEN_MECHANISMS
        options["sasl_mechanism"] = "OAUTHBEARER" if by_token else kafka.sasl_mechanism
        options["sasl_plain_username"] = kafka.sasl_username
        options["sasl_plain_password"] = None if by_token else login.password()
    return options


async def connection_problem(access: ClusterAccess) -> str | None:
    """Why no broker of `bootstrap_servers` accepts a connection; None: a broker does.

    aiokafka raises the same error whatever the cause, so this connects to each broker again. Raises
    SettingsError for malformed addresses.
    """
    causes = []
    try:
        options = connection_options(access)
    except LoginUnavailable as error:
        return str(error)
    options["request_timeout_ms"] = int(_PROBE_TIMEOUT_S * 1000)
    for address in access.addresses:
        try:
            connection = await open_connection(*address, **options)
            try:
                require_needed(connection._versions)
                # A broker answers this request only after authentication.
                await connection.send(MetadataRequest([]))
            finally:
                connection.close()
        except KAFKA_FAILURES as error:
            causes.append(f"{joined([address])}: {_cause(error, access.kafka)}")
        else:
            return None
    return "; ".join(causes)


async def explain_error(error: BaseException, access: ClusterAccess) -> str:
    """Why a call to Kafka failed with `error`: the `connection_problem`, or else the error's own
    text. An error of a schema registry is returned as it is, without a request to Kafka.

    Raises SettingsError as `connection_problem` does.
    """
    if isinstance(error, RegistryError):
        return error_text(error)
    return await connection_problem(access) or error_text(error)


def _cause(error: BaseException, kafka: KafkaSettings) -> str:
    if isinstance(error, KafkaConnectionError):
        error = error.__cause__ or error  # the socket's
    match error:
        case ssl.SSLCertVerificationError():
            remedy = _REMEDIES.get(error.verify_code, "set kafka.ssl_cafile to its CA")
            return f"the broker's certificate is not trusted ({error.verify_message}): {remedy}"
        case ssl.SSLError(reason=str(reason)) if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
            if kafka.ssl_certfile is None:
                return "the broker wants a client certificate (kafka.ssl_certfile, ssl_keyfile)"
            return f"the broker refuses the certificate {kafka.ssl_certfile} ({reason.lower()})"
        case asyncio.IncompleteReadError() if (error.expected or 0) >> 16 == _TLS_ALERT:
            return "this port takes TLS only: kafka.security_protocol is SSL or SASL_SSL there"
        case IllegalSaslStateError():
            return "this port takes no login: kafka.security_protocol is PLAINTEXT or SSL there"
        case LoginUnavailable():
            return str(error)
        case SaslAuthenticationFailed() if kafka.sasl_mechanism in TOKEN_MECHANISMS:
            reason = printable(" ".join(map(str, error.args)), 200)
            return f"the broker refuses the token ({kafka.sasl_mechanism}): {reason}"
        case SaslAuthenticationFailed():
            return (
                f"wrong user name or password for {kafka.sasl_username!r} ({kafka.sasl_mechanism})"
            )
        case UnsupportedSaslMechanismError():
            return f"the broker does not take SASL mechanism {kafka.sasl_mechanism}"
        case asyncio.TimeoutError():
            return f"no answer within {_PROBE_TIMEOUT_S:g} s"
        case IncompatibleBrokerVersion():
            return error_text(error)
        case ConnectionRefusedError():
            return "connection refused: is a broker listening there?"
        case OSError() if error.strerror and not isinstance(error, ssl.SSLError | ConnectionError):
            return error.strerror
    # The broker closed the connection, or does not speak TLS: it gives no reason.
    if kafka.security_protocol.endswith("SSL"):
        return "the broker ended the TLS connection: is this a TLS port?"
    return (
        "the broker ended the connection:"
        f" does kafka.security_protocol={kafka.security_protocol} fit this port?"
    )


def quiet_client_logs() -> None:
    """Silence aiokafka, which logs each failed attempt; sparklag logs the first of a series."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)

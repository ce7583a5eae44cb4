"""How both halves connect to Kafka, and why a connection failed, in one line."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Any

from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import KafkaError, SaslAuthenticationFailed, UnsupportedSaslMechanismError
from aiokafka.helpers import create_ssl_context
from aiokafka.protocol.metadata import MetadataRequest

from sparklag_schemas.errors import RegistryError, SettingsError, SparklagError
from sparklag_schemas.settings import KafkaSettings

_PROBE_TIMEOUT_S = 5.0


class KafkaUnavailable(SparklagError):
    """No broker could be talked to; the text names the broker and the cause."""


def client_options(bootstrap_servers: str, kafka: KafkaSettings) -> dict[str, Any]:
    """Keyword arguments for any aiokafka client.

    Raises SettingsError for addresses that are none, and for unusable TLS files.
    """
    try:
        collect_hosts(bootstrap_servers)
    except ValueError as error:
        raise SettingsError(
            f"bootstrap_servers = {bootstrap_servers!r}: takes host:port, several with commas"
        ) from error
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap_servers,
        "client_id": kafka.client_id,
        "request_timeout_ms": int(kafka.request_timeout_s * 1000),
        "security_protocol": kafka.security_protocol,
    }
    if kafka.security_protocol.endswith("SSL"):
        options["ssl_context"] = _ssl_context(kafka)
    if kafka.security_protocol.startswith("SASL"):
        options["sasl_mechanism"] = kafka.sasl_mechanism
        options["sasl_plain_username"] = kafka.sasl_username
        options["sasl_plain_password"] = kafka.sasl_password
    return options


def _ssl_context(kafka: KafkaSettings) -> ssl.SSLContext:
    try:
        context: ssl.SSLContext = create_ssl_context(
            cafile=kafka.ssl_cafile,
            certfile=kafka.ssl_certfile,
            keyfile=kafka.ssl_keyfile,
            password=kafka.ssl_key_password,
        )
    except (OSError, ValueError) as error:
        # ssl.SSLError is an OSError. None of these say which file they mean.
        raise SettingsError(f"TLS files of kafka ({kafka.tls_files}): {error}") from error
    context.check_hostname = kafka.ssl_check_hostname
    return context


async def explain_failure(bootstrap_servers: str, kafka: KafkaSettings) -> str | None:
    """Why no broker of `bootstrap_servers` takes a connection; None when one does.

    aiokafka raises the same error whatever the cause, so each broker is asked again by itself.
    """
    causes = []
    options = client_options(bootstrap_servers, kafka)
    del options["bootstrap_servers"]
    options["request_timeout_ms"] = int(_PROBE_TIMEOUT_S * 1000)
    for host, port, _ in collect_hosts(bootstrap_servers):
        try:
            connection = await create_conn(host, port, **options)
            try:
                # The first request that a broker answers only to whom it knows.
                await connection.send(MetadataRequest([]))
            finally:
                connection.close()
        except (OSError, KafkaError, asyncio.TimeoutError) as error:
            causes.append(f"{host}:{port}: {_cause(error, kafka)}")
        else:
            return None
    return "; ".join(causes)


async def explain_error(error: BaseException, bootstrap_servers: str, kafka: KafkaSettings) -> str:
    """Why a call failed with `error`: what `explain_failure` finds, or else the error's own text. A
    schema registry's says it all, and Kafka is not asked.

    Raises SettingsError as `client_options` does.
    """
    found = None
    if not isinstance(error, RegistryError):
        found = await explain_failure(bootstrap_servers, kafka)
    return found or str(error) or type(error).__name__


def _cause(error: BaseException, kafka: KafkaSettings) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return (
                f"the broker's certificate is not trusted ({error.verify_message}):"
                " set kafka.ssl_cafile to its CA"
            )
        case SaslAuthenticationFailed():
            return (
                f"wrong user name or password for {kafka.sasl_username!r} ({kafka.sasl_mechanism})"
            )
        case UnsupportedSaslMechanismError():
            return f"the broker does not take SASL mechanism {kafka.sasl_mechanism}"
        case asyncio.TimeoutError():
            return f"no answer within {_PROBE_TIMEOUT_S:g} s"
        case ConnectionRefusedError():
            return "connection refused: is a broker listening there?"
        case OSError() if error.strerror and not isinstance(error, ssl.SSLError | ConnectionError):
            return error.strerror
    # The broker hung up, or does not speak TLS: it never says why.
    if kafka.security_protocol.endswith("SSL"):
        return (
            "the broker ended the TLS connection: is this a TLS port, and does it want a client"
            " certificate (kafka.ssl_certfile, kafka.ssl_keyfile)?"
        )
    return (
        "the broker ended the connection:"
        f" does kafka.security_protocol={kafka.security_protocol} fit this port?"
    )


def quiet_client_logs() -> None:
    """aiokafka logs each failed attempt as an error; we say once what failed, and go on."""
    for name in ("aiokafka", "aiokafka.client", "aiokafka.conn", "aiokafka.cluster"):
        logging.getLogger(name).setLevel(logging.CRITICAL)

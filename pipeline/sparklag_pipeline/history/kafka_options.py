"""Kafka's settings as options of Spark's Kafka source."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sparklag_schemas.errors import SettingsError
from sparklag_schemas.settings import ClusterAccess, KafkaSettings

_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def kafka_options(access: ClusterAccess) -> dict[str, str]:
    """`kafka.*` options. Certificates and keys are passed as PEM text: executors elsewhere do not
    have the files. Raises SettingsError for a file that cannot be read or that Java does not take.
    """
    kafka = access.kafka
    options = {
        "kafka.bootstrap.servers": access.bootstrap_servers,
        "kafka.security.protocol": kafka.security_protocol,
        "kafka.client.id": kafka.client_id,
    }
    if kafka.security_protocol.startswith("SASL"):
        login = _LOGIN_MODULES[kafka.sasl_mechanism]
        user, password = _quoted(kafka.sasl_username or ""), _quoted(kafka.sasl_password or "")
        options["kafka.sasl.mechanism"] = kafka.sasl_mechanism
        options["kafka.sasl.jaas.config"] = f"{login} required username={user} password={password};"
    if kafka.security_protocol.endswith("SSL"):
        options |= _tls(kafka)
    return options


def _tls(kafka: KafkaSettings) -> dict[str, str]:
    options = {}
    if not kafka.ssl_check_hostname:
        options["kafka.ssl.endpoint.identification.algorithm"] = ""
    if kafka.ssl_cafile is not None:
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.certificates"] = _pem("ssl_cafile", kafka.ssl_cafile)
    if kafka.ssl_certfile is not None:
        chain = _pem("ssl_certfile", kafka.ssl_certfile)
        # As in Python's ssl, the key may be in the certificate's file.
        key = chain if kafka.ssl_keyfile is None else _pem("ssl_keyfile", kafka.ssl_keyfile)
        options["kafka.ssl.keystore.type"] = "PEM"
        options["kafka.ssl.keystore.certificate.chain"] = chain
        options["kafka.ssl.keystore.key"] = _pkcs8(key, kafka.ssl_keyfile or kafka.ssl_certfile)
        if kafka.ssl_key_password is not None:
            options["kafka.ssl.key.password"] = kafka.ssl_key_password
    return options


def _pkcs8(key: str, file: str) -> str:
    if "BEGIN PRIVATE KEY" in key or "BEGIN ENCRYPTED PRIVATE KEY" in key:
        return key
    raise SettingsError(
        f"setting kafka.ssl_keyfile = {file!r}: Java takes a key in PKCS #8"
        " (openssl pkcs8 -topk8 makes one)"
    )


def _pem(setting: str, file: str) -> str:
    try:
        return Path(file).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"setting kafka.{setting} = {file!r}: {error}") from error


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

"""Kafka's settings as options of Spark's source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparklag_jobs.history.events import kafka_options
from sparklag_schemas import KafkaSettings, SettingsError
from sparklag_schemas.settings import ClusterAccess

SERVERS = "broker:9093"
KEY = "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n"


def options(**fields: Any) -> dict[str, str]:
    return dict(kafka_options(ClusterAccess(SERVERS, KafkaSettings(**fields))))


def test_a_password_may_hold_quotes_and_backslashes() -> None:
    result = options(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="me",
        sasl_password='a"b\\c;',
    )
    assert result["kafka.bootstrap.servers"] == SERVERS
    assert result["kafka.security.protocol"] == "SASL_PLAINTEXT"
    assert result["kafka.sasl.mechanism"] == "SCRAM-SHA-512"
    assert result["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="me" password="a\\"b\\\\c;";'
    )


def test_certificates_and_keys_go_as_their_text(tmp_path: Path) -> None:
    for name, text in (("ca.pem", "CA"), ("chain.pem", "CHAIN"), ("key.pem", KEY)):
        (tmp_path / name).write_text(text)
    result = options(
        security_protocol="SSL",
        ssl_cafile=str(tmp_path / "ca.pem"),
        ssl_certfile=str(tmp_path / "chain.pem"),
        ssl_keyfile=str(tmp_path / "key.pem"),
        ssl_key_password="secret",
        ssl_check_hostname=False,
    )
    output = {name: value for name, value in result.items() if name.startswith("kafka.ssl.")}
    assert output == {
        "kafka.ssl.endpoint.identification.algorithm": "",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": "CA",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": "CHAIN",
        "kafka.ssl.keystore.key": KEY,
        "kafka.ssl.key.password": "secret",
    }


def test_a_key_that_java_does_not_take_and_a_missing_file_are_one_line(tmp_path: Path) -> None:
    old = tmp_path / "old.pem"
    old.write_text("-----BEGIN RSA PRIVATE KEY-----")
    with pytest.raises(SettingsError, match=r"ssl_keyfile = '.*old.pem': Java takes .* PKCS #8"):
        options(security_protocol="SSL", ssl_certfile=str(old))
    with pytest.raises(SettingsError, match=r"setting kafka\.ssl_cafile = 'nowhere'"):
        options(security_protocol="SSL", ssl_cafile="nowhere")

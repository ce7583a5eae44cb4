"""Passwords that others wrote do not leave the driver."""

from __future__ import annotations

import pytest

from sparklag_listener.redaction import redact


@pytest.mark.parametrize(
    "text",
    [
        'PlainLoginModule required username="u" password="S3CRET";',
        "PlainLoginModule required username='u' password='S3CRET';",
        "kafka.ssl.keystore.password=S3CRET, other=1",
        "[kafka.ssl.key.password -> S3CRET, subscribe -> orders]",
        "{'ssl.truststore.password': 'S3CRET'}",
        '{"client_secret": "S3CRET"}',
        "fs.s3a.secret.key=S3CRET",
        "fs.s3a.access.key = S3CRET",
        "fs.s3a.session.token=S3CRET",
        "PASSWORD: S3CRET",
        "s3a://AKIA:S3CRET@bucket/checkpoint",
        "jdbc:postgresql://user:S3CRET@host/db",
    ],
)
def test_the_value_of_what_is_named_like_a_secret_is_taken_out(text: str) -> None:
    redacted = redact(text)
    assert "S3CRET" not in redacted
    assert "***" in redacted


@pytest.mark.parametrize(
    "text",
    [
        "file:/checkpoints/orders",
        "s3a://bucket/checkpoints/orders",
        "hdfs://namenode:8020/checkpoints/user@example",
        "java.lang.IllegalStateException: Partition orders-0's offset was changed from 5 to 3",
        "Caused by: org.apache.kafka.common.KafkaException: Failed to create new NetworkClient",
        "[PARSE_SYNTAX_ERROR] Syntax error at or near 'token': extra input",
        "the keystore password was incorrect",
    ],
)
def test_other_text_is_left_as_it_is(text: str) -> None:
    assert redact(text) == text

"""Security settings pass through to both sides, and each way to fail has a line of its own."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from sparklag_kafka.access import client_options, connection_problem
from sparklag_schemas import KafkaSettings, SettingsError
from sparklag_schemas.settings import ClusterAccess
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.cli.check import diagnose
from tests.certificates import Certificates
from tests.local_kafka import LocalKafka
from tests.messages import QUERY_ID, observation, position
from tests.second_client import SecondClient
from tests.secured_kafka import login
from tests.service.cli.test_check import NOWHERE
from tests.service.conftest import running, settings_for

pytestmark = pytest.mark.kafka

USER = {"sasl_username": "sparklag", "sasl_password": "right"}


async def problem_at(servers: str, *settings: KafkaSettings) -> str:
    message = await connection_problem(ClusterAccess(servers, *settings))
    assert message is not None
    return message


@pytest.mark.parametrize(
    ("kafka_settings", "cause"),
    [
        (login("sparklag", "wrong"), "wrong user name or password for 'sparklag' (SCRAM-SHA-256)"),
        (login("nobody"), "wrong user name or password for 'nobody'"),
        (login("sparklag", mechanism="PLAIN"), "does not take SASL mechanism PLAIN"),
        (KafkaSettings(), "does kafka.security_protocol=PLAINTEXT fit this port"),
        (KafkaSettings(security_protocol="SSL"), "ended the TLS connection: is this a TLS port"),
    ],
)
async def test_each_way_to_log_in_wrongly_is_named_and_no_password_is_shown(
    scram_kafka: LocalKafka, kafka_settings: KafkaSettings, cause: str
) -> None:
    message = await problem_at(scram_kafka.bootstrap_servers, kafka_settings)
    assert cause in message, message
    assert "wrong'" not in message
    assert "\n" not in message


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_right_login_has_no_problem(scram_kafka: LocalKafka, mechanism: Any) -> None:
    kafka_settings = login("sparklag", mechanism=mechanism)
    access = ClusterAccess(scram_kafka.bootstrap_servers, kafka_settings)
    assert await connection_problem(access) is None


async def test_over_tls_with_a_client_certificate_the_service_works(
    tls_kafka: LocalKafka, certificates: Certificates, topic_name: str
) -> None:
    plain = SecondClient(tls_kafka.internal_servers)
    plain.create(topic_name, 1)
    settings = settings_for(tls_kafka.bootstrap_servers, kafka=certificates.kafka_settings())
    async with running(settings, plain) as service:
        service.observe(
            observation(observed_at=epoch_ms(), sources=[position({topic_name: {0: 0}})])
        )
        await service.shows(QUERY_ID, lambda event: event.total_lag == 0, "lag 0")


@pytest.mark.parametrize(
    ("made", "cause"),
    [
        (
            {"not_after": datetime(2001, 1, 1)},
            r"certificate has expired\): renew it on the broker, or correct the clock",
        ),
        ({"host": "elsewhere"}, r"for '127.0.0.1'.*\): connect to a name in the cert"),
    ],
)
async def test_an_expired_certificate_and_another_hosts_have_remedies_of_their_own(
    made: dict[str, Any], cause: str, certificates: Certificates
) -> None:
    context = certificates.other_server_context(**made)
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
    host, port = server.sockets[0].getsockname()
    try:
        message = await problem_at(f"{host}:{port}", certificates.kafka_settings())
    finally:
        server.close()
    assert re.search(cause, message), message


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"ssl_certfile": None, "ssl_keyfile": None}, "the broker wants a client certificate"),
        (
            {"ssl_certfile": "{other_client}", "ssl_keyfile": None},
            "the broker refuses the certificate /",
        ),
        ({"ssl_cafile": "{other_ca}"}, "certificate is not trusted"),
        ({"ssl_cafile": "{other_ca}"}, "kafka.ssl_cafile"),
        ({"security_protocol": "PLAINTEXT"}, "this port takes TLS only"),
        ({"security_protocol": "SASL_SSL", **USER}, "this port takes no login"),
    ],
)
async def test_each_way_to_come_wrongly_to_a_tls_port_is_named(
    fields: dict[str, Any], cause: str, tls_kafka: LocalKafka, certificates: Certificates
) -> None:
    files = vars(certificates)
    named = {name: text and text.format_map(files) for name, text in fields.items()}
    message = await problem_at(tls_kafka.bootstrap_servers, certificates.kafka_settings(**named))
    assert cause in message, message


@pytest.mark.parametrize("wrong", ["missing.pem", "/"])
def test_tls_files_that_cannot_be_used_are_named(certificates: Certificates, wrong: str) -> None:
    with pytest.raises(SettingsError, match="kafka, TLS files"):
        client_options(
            ClusterAccess("127.0.0.1:1", certificates.kafka_settings(ssl_certfile=wrong))
        )


@pytest.mark.parametrize("trusted", [[], ["127.*"]])
async def test_no_password_goes_to_a_broker_that_no_setting_names(
    trusted: list[str], scram_kafka: LocalKafka
) -> None:
    # The cluster lists its broker as 127.0.0.1.
    servers = scram_kafka.bootstrap_servers.replace("127.0.0.1", "localhost")
    kafka = replace(login(), trusted_brokers=trusted)
    texts = [
        f.text
        for f in await diagnose(settings_for(servers, kafka=kafka).resolved(servers), NOWHERE)
    ]
    refused = [text for text in texts if "no password is sent to it" in text]
    assert len(refused) == (not trusted), texts

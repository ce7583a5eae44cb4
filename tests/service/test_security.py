"""Security settings pass through to both sides, and each way to fail has a line of its own."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from msgspec.structs import replace

from sparklag_kafka.access import client_options, connection_problem
from sparklag_listener.publishing import publish_offsets
from sparklag_listener.stats import Stats
from sparklag_schemas import KafkaSettings, MirrorSettings, Observation, Settings, SettingsError
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.settings import ClusterAccess
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.cli.check import diagnose
from tests.background_task import background
from tests.certificates import Certificates
from tests.local_kafka import LocalKafka
from tests.messages import QUERY_ID, observation, position, seen
from tests.second_client import SecondClient
from tests.secured_kafka import grant, login
from tests.service.cli.test_check import NOWHERE
from tests.service.conftest import running, settings_for, starting
from tests.service.groups import metadata_of
from tests.waiting import DEADLINE_S, holds

pytestmark = pytest.mark.kafka

USER = {"sasl_username": "sparklag", "sasl_password": "right"}


@pytest.fixture(scope="module")
def internal(scram_kafka: LocalKafka) -> SecondClient:
    return SecondClient(scram_kafka.internal_servers)


async def problem_at(servers: str, *settings: KafkaSettings) -> str:
    message = await connection_problem(ClusterAccess(servers, *settings))
    assert message is not None
    return message


def revoke_denials(broker: LocalKafka, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.internal_servers})
    denials = AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:sparklag",
        "*",
        AclOperation.ANY,
        AclPermissionType.DENY,
    )
    for revoked in admin.delete_acls([denials]).values():
        revoked.result(60)


def granted_settings(broker: LocalKafka, internal: SecondClient) -> Settings:
    settings = settings_for(broker.bootstrap_servers, kafka=login("sparklag"), create_topics=False)
    internal.create(settings.offsets_topic, 2)
    internal.create(settings.lag_topic, 2)
    read, write = AclOperation.READ, AclOperation.WRITE
    grant(broker, ResourceType.TOPIC, settings.offsets_topic, read, write)
    grant(broker, ResourceType.TOPIC, settings.lag_topic, read, write)
    grant(broker, ResourceType.GROUP, settings.group_id, read)
    return settings


async def test_with_the_least_rights_both_sides_work_and_a_forbidden_topic_costs_only_itself(
    scram_kafka: LocalKafka, internal: SecondClient, topic_name: str
) -> None:
    settings = granted_settings(scram_kafka, internal)
    forbidden = f"{topic_name}-forbidden"
    for topic in (topic_name, forbidden):
        internal.create(topic, 1)
    internal.produce(topic_name, [b"x"] * 9)
    grant(scram_kafka, ResourceType.TOPIC, topic_name, AclOperation.DESCRIBE)

    queue: NewestQueue[Observation] = NewestQueue(10, lambda one: one.query_id)
    resolved = settings.resolved(scram_kafka.bootstrap_servers)
    async with background(publish_offsets(queue, resolved, Stats())):
        both = position({topic_name: {0: 4}, forbidden: {0: 1}})
        queue.put_nowait(observation(observed_at=epoch_ms(), sources=[both]))
        await asyncio.wait_for(queue.join(), DEADLINE_S)

    async with running(settings, internal) as service:
        event = await service.shows(QUERY_ID, lambda e: e.total_lag == 5, "lag of what it may see")
        by_topic = {topic.topic: topic.partitions[0] for topic in event.topics}
        assert by_topic[forbidden].lag is None
        reason = f"no right to describe topic {forbidden}"
        assert by_topic[forbidden].reason == reason
        assert service.state.degraded() == {"topics of default": reason}
        assert service.state.not_ready() == {}


@pytest.mark.parametrize(
    ("kind", "setting", "part", "reason"),
    [
        (ResourceType.TOPIC, "lag_topic", "view", "{0.lag_topic}: no right to it"),
        (ResourceType.TOPIC, "offsets_topic", "intake", "{0.offsets_topic}: no right to it"),
        (
            *(ResourceType.GROUP, "group_id", "intake"),
            "{0.offsets_topic}: no right to use group {0.group_id}",
        ),
    ],
)
async def test_a_missing_right_to_read_is_named_for_as_long_as_it_is_missing(
    kind: ResourceType,
    setting: str,
    part: str,
    reason: str,
    scram_kafka: LocalKafka,
    internal: SecondClient,
) -> None:
    settings = granted_settings(scram_kafka, internal)
    name, read = getattr(settings, setting), AclOperation.READ
    grant(scram_kafka, kind, name, read, permission=AclPermissionType.DENY)
    async with starting(settings, internal) as service:
        counters = service.pipeline.counters
        named = f"cannot read topic {reason.format(settings)}"
        await holds(lambda: service.state.not_ready().get(part) == named, named)
        after, observed_reasons = counters.reads_failed + 3, set()

        def tried_again() -> bool:
            observed_reasons.add(service.state.not_ready().get(part))
            return counters.reads_failed >= after

        await holds(tried_again, "it tries again")
        assert observed_reasons == {named}


async def test_a_missing_right_to_publish_is_named_until_it_is_granted(
    scram_kafka: LocalKafka, internal: SecondClient, topic_name: str
) -> None:
    settings = granted_settings(scram_kafka, internal)
    internal.create(topic_name, 1)
    query = seen(topic_name, {0: 0})
    write = AclOperation.WRITE
    async with running(settings, internal) as service:
        grant(
            scram_kafka,
            ResourceType.TOPIC,
            settings.lag_topic,
            write,
            permission=AclPermissionType.DENY,
        )
        service.observe(query)
        named = f"cannot publish to topic {settings.lag_topic}: no right to it"
        await holds(lambda: service.state.not_ready() == {"publishing": named}, named)
        revoke_denials(scram_kafka, settings.lag_topic)
        await service.is_ready()
        await service.shows(query.query_id, lambda event: True, "its event")


async def test_a_mirror_names_the_right_that_is_missing_and_goes_on_once_it_is_granted(
    scram_kafka: LocalKafka, internal: SecondClient, topic_name: str
) -> None:
    internal.create(topic_name, 1)
    group = f"spark-{topic_name}"
    settings = replace(
        granted_settings(scram_kafka, internal),
        mirror=MirrorSettings(queries=[topic_name], interval_s=0.1),
    )
    # With that it is measured, and not mirrored.
    grant(scram_kafka, ResourceType.TOPIC, topic_name, AclOperation.DESCRIBE)
    async with running(settings, internal) as service:

        async def fails(reason: str) -> None:
            why = f"Kafka cluster default: group {group}: {reason}"
            await holds(lambda: why in service.state.degraded().values(), reason)

        service.observe(seen(topic_name, {0: 0}, query=topic_name))
        await fails("no right to it: the mirror needs Read on the group")
        grant(scram_kafka, ResourceType.GROUP, group, AclOperation.READ)
        await fails(
            f"1 of 1 partitions not committed: topic {topic_name}: no right to it: the mirror needs"
            " Read on the topic"
        )
        grant(scram_kafka, ResourceType.TOPIC, topic_name, AclOperation.READ)
        await holds(lambda: not service.state.degraded(), "nothing is missing")
    assert internal.committed(group, topic_name) == {0: 0}


async def test_check_names_the_rights_that_are_missing_and_nothing_else(
    scram_kafka: LocalKafka, internal: SecondClient
) -> None:
    settings = granted_settings(scram_kafka, internal)
    assert all(
        f.ok for f in await diagnose(settings.resolved(scram_kafka.bootstrap_servers), NOWHERE)
    )
    # What is tried leaves nothing behind.
    assert await metadata_of(scram_kafka.internal_servers, settings.group_id) == {}
    for topic in (settings.offsets_topic, settings.lag_topic):
        assert await asyncio.to_thread(internal.read_all, topic) == []
    elsewhere = settings_for(
        scram_kafka.bootstrap_servers, kafka=login("sparklag"), create_topics=False
    )
    for topic in (elsewhere.offsets_topic, elsewhere.lag_topic):
        internal.create(topic, 1, retention_ms="1000")
        grant(scram_kafka, ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    grant(scram_kafka, ResourceType.TOPIC, elsewhere.lag_topic, AclOperation.DESCRIBE_CONFIGS)
    # It allows to read what the group has committed, and not to commit.
    grant(scram_kafka, ResourceType.GROUP, elsewhere.group_id, AclOperation.DESCRIBE)
    results = await diagnose(elsewhere.resolved(scram_kafka.bootstrap_servers), NOWHERE)
    missing = [(f.state, f.text) for f in results if f.text.startswith("no right to ")]
    problem = f"topic {elsewhere.lag_topic}: retention.ms=1000 deletes messages"
    assert any(f.state == "bad" and f.text.startswith(problem) for f in results)
    assert missing == [
        ("note", f"no right to describe the settings of {elsewhere.offsets_topic}"),
        ("bad", f"no right to write to topic {elsewhere.lag_topic}"),
        # Only drivers need it.
        ("note", f"no right to write to topic {elsewhere.offsets_topic}"),
        ("bad", f"no right to read topic {elsewhere.offsets_topic}"),
        ("bad", f"no right to read topic {elsewhere.lag_topic}"),
        ("bad", f"no right to use group {elsewhere.group_id}"),
    ]


async def test_check_names_a_hidden_topic(scram_kafka: LocalKafka, internal: SecondClient) -> None:
    settings = settings_for(scram_kafka.bootstrap_servers, kafka=login("stranger"))
    internal.create(settings.offsets_topic, 1)
    texts = [
        f.text for f in await diagnose(settings.resolved(scram_kafka.bootstrap_servers), NOWHERE)
    ]
    assert f"topic {settings.offsets_topic}: no right to see it" in texts


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
    assert cause in message
    assert "wrong'" not in message
    assert "\n" not in message


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_right_login_has_no_problem(scram_kafka: LocalKafka, mechanism: Any) -> None:
    kafka_settings = login("sparklag", mechanism=mechanism)
    access = ClusterAccess(scram_kafka.bootstrap_servers, kafka_settings)
    assert await connection_problem(access) is None


async def test_a_name_that_does_not_resolve_and_a_silent_port_are_named() -> None:
    message = await problem_at("no-such-host.invalid:9092")
    assert message.startswith("no-such-host.invalid:9092: ")


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


async def test_untrusted_broker_is_named(tls_kafka: LocalKafka, certificates: Certificates) -> None:
    stranger = certificates.kafka_settings(ssl_cafile=str(certificates.other_ca))
    message = await problem_at(tls_kafka.bootstrap_servers, stranger)
    assert "certificate is not trusted" in message
    assert "kafka.ssl_cafile" in message


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
        ({"ssl_certfile": "{other}", "ssl_keyfile": None}, "the broker refuses the certificate /"),
        ({"security_protocol": "PLAINTEXT"}, "this port takes TLS only"),
        ({"security_protocol": "SASL_SSL", **USER}, "this port takes no login"),
    ],
)
async def test_each_way_to_come_wrongly_to_a_tls_port_is_named(
    fields: dict[str, Any], cause: str, tls_kafka: LocalKafka, certificates: Certificates
) -> None:
    other = str(certificates.other_client)
    named = {name: text and text.format(other=other) for name, text in fields.items()}
    message = await problem_at(tls_kafka.bootstrap_servers, certificates.kafka_settings(**named))
    assert cause in message


@pytest.mark.parametrize("wrong", ["missing.pem", "/"])
def test_tls_files_that_cannot_be_used_are_named(certificates: Certificates, wrong: str) -> None:
    with pytest.raises(SettingsError, match="TLS files of kafka"):
        client_options(
            ClusterAccess("127.0.0.1:1", certificates.kafka_settings(ssl_certfile=wrong))
        )

"""What may be described and not read is left alone; its earlier ends are looked up all the same."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType

from sparklag_schemas.timestamps import epoch_ms
from tests.local_kafka import LocalKafka
from tests.logged import logged
from tests.second_client import SecondClient
from tests.service.enrichment.record_times.sampling import sampling, standing, write_batches
from tests.service.test_security import grant, login

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def secured_kafka() -> Iterator[LocalKafka]:
    """`sparklag` may do what it was granted; who comes by the internal listener may do all."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with LocalKafka(
        security_protocol="SASL_PLAINTEXT", scram_users={"sparklag": "right"}, properties=properties
    ) as broker:
        yield broker


async def test_a_topic_that_may_not_be_read_is_left_alone_and_told_of_once(
    secured_kafka: LocalKafka, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    internal = SecondClient(secured_kafka.internal_servers)
    secret, open_topic = f"{topic_name}-secret", f"{topic_name}-open"
    for topic in (secret, open_topic):
        internal.create(topic, 3)
        grant(secured_kafka, ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
        await write_batches(
            secured_kafka.internal_servers, topic, [[epoch_ms()], [epoch_ms()]], partitions=range(3)
        )
    grant(secured_kafka, ResourceType.TOPIC, open_topic, AclOperation.READ)
    states = [
        standing({topic: dict.fromkeys(range(3), 0)}, topic) for topic in (secret, open_topic)
    ]
    caplog.set_level(logging.WARNING, "sparklag_service")
    async with sampling(secured_kafka.bootstrap_servers, kafka=login("sparklag")) as sampled:
        counts = sampled.record_times.counts
        await sampled.until(lambda: len(sampled.times()) == 3, "the open one is sampled", *states)
        await sampled.until(lambda: counts.forbidden == 1, "the other is refused", *states)
        requests = counts.requests
        await sampled.checks(5, *states)
        assert counts.requests == requests
        assert (counts.forbidden, counts.failed) == (1, 0)
        assert {topic for topic, _ in sampled.times()} == {open_topic}
        times = sampled.enricher.offsets["default"][secret].log_ends["read_uncommitted"]
        assert len(times) > 1, "its earlier ends are known"
    told = [line for line in logged(caplog) if secret in line]
    assert told == [
        f"Kafka cluster default: no right to read topic {secret}: the age of its records is"
        " estimated from log growth; to read it, allow Read, or set time_lag.sample = false"
    ]
    assert "right" not in told[0].replace("no right to read", "")

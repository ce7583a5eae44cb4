"""Makes the users, topics and rights of the profile `secure` of docker-compose.yml.

Each user has the least rights: docs/operator/rights.md. It may run again: what is there stays.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from sparklag_jobs.demo.streams import ORDERS, TOTALS_PARTITIONS, TOTALS_TOPIC, demo_topic
from sparklag_kafka.clients.topic_setup import create_missing
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_schemas.errors import SparklagError
from sparklag_schemas.messages.topics import own_topics
from sparklag_schemas.settings import ResolvedSettings, load_settings

_SECRETS: Final = Path("/run/secrets")
_TIMEOUT_S: Final = 60.0
_READ, _WRITE = AclOperation.READ, AclOperation.WRITE
_DESCRIBE_CONFIGS: Final = AclOperation.DESCRIBE_CONFIGS
_LITERAL: Final = ResourcePatternType.LITERAL
_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP


def rights(settings: ResolvedSettings) -> list[tuple[str, ResourceType, str, AclOperation]]:
    """User, kind and name of a resource, operation. Read and Write include Describe."""
    return [
        ("producer", _TOPIC, ORDERS.topic, _WRITE),
        ("query", _TOPIC, ORDERS.topic, _READ),
        ("query", _TOPIC, TOTALS_TOPIC, _WRITE),
        ("query", _TOPIC, settings.offsets_topic, _WRITE),
        ("service", _TOPIC, settings.offsets_topic, _READ),
        ("service", _TOPIC, settings.lag_topic, _READ),
        ("service", _TOPIC, settings.lag_topic, _WRITE),
        ("service", _TOPIC, settings.offsets_topic, _DESCRIBE_CONFIGS),
        ("service", _TOPIC, settings.lag_topic, _DESCRIBE_CONFIGS),
        ("service", _TOPIC, ORDERS.topic, _READ),
        ("service", _GROUP, settings.group_id, _READ),
    ]


def main() -> int:
    """Exit code 1 with one line where Kafka refuses."""
    settings = load_settings().resolved()
    specs = [
        *own_topics(settings),
        demo_topic(ORDERS.topic, ORDERS.partitions),
        demo_topic(TOTALS_TOPIC, TOTALS_PARTITIONS),
    ]
    certificate = settings.kafka.ssl_certfile or ""
    admin = AdminClient(
        {
            "bootstrap.servers": settings.bootstrap_servers,
            "security.protocol": settings.kafka.security_protocol,
            "ssl.ca.location": settings.kafka.ssl_cafile or "",
            "ssl.certificate.location": certificate,
            "ssl.key.location": certificate,
        }
    )
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    users: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(file.stem, scram, file.read_bytes().strip())
        for file in _SECRETS.glob("*.password")
    ]
    acls = [
        AclBinding(kind, name, _LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for user, kind, name, operation in rights(settings)
    ]
    try:
        asyncio.run(create_missing(settings.access, specs))
        for result in (
            *admin.alter_user_scram_credentials(users).values(),
            *admin.create_acls(acls).values(),
        ):
            result.result(_TIMEOUT_S)
    except (SparklagError, KafkaException, *KAFKA_FAILURES) as error:
        sys.stderr.write(f"Kafka at {settings.bootstrap_servers}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

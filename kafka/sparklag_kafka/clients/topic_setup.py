"""Creates missing topics, and checks the settings of existing ones for data loss."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError, for_code

from sparklag_kafka.brokers.log_bounds import read_partitions
from sparklag_kafka.clients.client_options import TrustedBrokers, client_options
from sparklag_kafka.errors import TopicUnavailable
from sparklag_schemas.settings import ClusterAccess
from sparklag_schemas.topics import TopicSpec

_REPLICAS = 3


async def create_missing(access: ClusterAccess, specs: Iterable[TopicSpec]) -> list[str]:
    """Create those of `specs` that are missing; returns the names of those created.

    Raises TopicUnavailable where the broker refuses, one of KAFKA_FAILURES where none responds, and
    SettingsError as `client_options` does.
    """
    specs = list(specs)
    existing = await read_partitions([spec.name for spec in specs], access)
    missing = [spec for spec in specs if spec.name not in existing]
    if not missing:
        return []
    async with _admin(access) as admin:
        # Not `describe_cluster`, which reads all topics too.
        brokers = len(admin._client.cluster.brokers())
        return [spec.name for spec in missing if await _create(admin, spec, brokers)]


async def find_problems(access: ClusterAccess, specs: Iterable[TopicSpec]) -> dict[str, list[str]]:
    """Topic → sentences about its settings that would lose data.

    Without topics that are missing, or whose settings may not be described. Raises one of
    KAFKA_FAILURES, and SettingsError as `client_options` does.
    """
    specs = list(specs)
    existing = await read_partitions([spec.name for spec in specs], access)
    present = {spec.name: spec for spec in specs if spec.name in existing}
    if not present:
        return {}
    async with _admin(access) as admin:
        responses = await admin.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, name) for name in present]
        )
    return {
        name: present[name].problems({entry[0]: entry[1] for entry in entries})
        for response in responses
        for error_code, _message, _kind, name, entries in response.resources
        if error_code == 0
    }


@asynccontextmanager
async def _admin(access: ClusterAccess) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(**client_options(access))
    TrustedBrokers(access).guard(admin._client)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def _create(admin: AIOKafkaAdminClient, spec: TopicSpec, brokers: int) -> bool:
    # aiokafka's version of the request is older than "the broker's default".
    new = NewTopic(
        spec.name,
        num_partitions=spec.partitions,
        replication_factor=spec.replication_factor or min(_REPLICAS, brokers),
        topic_configs=dict(spec.config),
    )
    response = await admin.create_topics([new])
    for _topic, error_code, message in response.topic_errors:
        error = for_code(error_code)
        if error_code == 0:
            return True
        if error is TopicAlreadyExistsError:
            return False
        raise TopicUnavailable(
            f"topic {spec.name} does not exist and cannot be created ({message or error.__name__}):"
            " create it with `sparklag topics create` and a user that may"
        )
    return True

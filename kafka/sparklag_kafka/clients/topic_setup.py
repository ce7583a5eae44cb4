"""Checks rights on topics, creates topics, and finds problems of their settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import InitProducerIdRequest

from sparklag_kafka import errors
from sparklag_kafka.access import TrustedBrokers, client_options, connection_problem
from sparklag_kafka.brokers.group_offsets import commit_request
from sparklag_kafka.brokers.logs import read_partitions
from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_schemas.messages.topics import TopicSpec
from sparklag_schemas.settings import ClusterAccess

_NO_SUCH_PARTITION: Final = 2**31 - 2
_PRODUCE_TIMEOUT_MS: Final = 5_000
_NO_TRANSACTION_MS: Final = 2**31 - 1
_REPLICAS: Final = 3


async def may_write(pool: BrokerPool, topic: str) -> bool:
    """Raises KafkaUnavailable."""
    topics = [(topic, [(_NO_SUCH_PARTITION, b"")])]
    request = ProduceRequest(
        transactional_id=None, required_acks=1, timeout=_PRODUCE_TIMEOUT_MS, topics=topics
    )
    return await _error_code(pool, request) != errors.TOPIC_FORBIDDEN


async def may_read(pool: BrokerPool, topic: str) -> bool:
    """Raises KafkaUnavailable."""
    topics = [(topic, [(_NO_SUCH_PARTITION, 0, 1)])]
    request = FetchRequest(
        max_wait_time=0, min_bytes=0, max_bytes=1, isolation_level=0, topics=topics
    )
    return await _error_code(pool, request) != errors.TOPIC_FORBIDDEN


async def may_use_group(pool: BrokerPool, group_id: str, topic: str) -> bool:
    """Return whether `group_id` may commit offsets; `topic` is any existing topic. Raises
    KafkaUnavailable."""
    request = commit_request(group_id, [(topic, [(_NO_SUCH_PARTITION, 0, "")])])
    return await _error_code(pool, request) != errors.GROUP_FORBIDDEN


async def producer_id_error(pool: BrokerPool) -> int:
    """The error code of the request for a producer id, which idempotence needs. NONE also where
    no broker takes the request."""
    response = await pool.first_response(InitProducerIdRequest(None, _NO_TRANSACTION_MS))
    return errors.NONE if response is None else int(response.error_code)


async def _error_code(pool: BrokerPool, request: Any) -> int:
    response = await pool.first_response(request)
    if response is None:
        raise errors.KafkaUnavailable("no broker answers")
    (_, ((_, error_code, *_),)), *_ = response.topics
    return int(error_code)


async def create_missing(access: ClusterAccess, specs: Iterable[TopicSpec]) -> list[str]:
    """Create the missing topics of `specs`; returns the names of the created topics.

    Raises TopicUnavailable where the broker refuses, one of KAFKA_FAILURES where none responds, and
    SettingsError as `client_options` does.
    """
    specs = list(specs)
    existing = await read_partitions([spec.name for spec in specs], access)
    missing = [spec for spec in specs if spec.name not in existing]
    if not missing:
        return []
    try:
        async with _admin(access) as admin:
            # Not `describe_cluster`, which reads all topics too.
            brokers = len(admin._client.cluster.brokers())
            return [spec.name for spec in missing if await _create(admin, spec, brokers)]
    except errors.RequestNotTaken as error:
        reason = await connection_problem(access) or errors.error_text(error)
        raise errors.TopicUnavailable(f"there is no topic {missing[0].name}: {reason}") from error


async def find_problems(access: ClusterAccess, specs: Iterable[TopicSpec]) -> dict[str, list[str]]:
    """Sentences about settings that would lose data, by topic.

    Topics that are missing, or whose settings may not be described, are left out. Raises one of
    KAFKA_FAILURES (RequestNotTaken: the broker describes none), and SettingsError as
    `client_options` does.
    """
    by_name = {spec.name: spec for spec in specs}
    existing = await read_partitions(by_name, access)
    if not existing:
        return {}
    async with _admin(access) as admin:
        responses = await admin.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, name) for name in by_name if name in existing]
        )
    return {
        name: by_name[name].problems({entry[0]: entry[1] for entry in entries})
        for response in responses
        for error_code, _message, _kind, name, entries in response.resources
        if error_code == errors.NONE
    }


@asynccontextmanager
async def _admin(access: ClusterAccess) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(**client_options(access))
    TrustedBrokers(access).guard(admin._client)
    try:
        await admin.start()
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
    ((_, error_code, *message),) = (await admin.create_topics([new])).topic_errors
    if error_code in (errors.NONE, TopicAlreadyExistsError.errno):
        return bool(error_code == errors.NONE)
    reason = ": ".join(filter(None, (errors.error_name(error_code), *message)))
    raise errors.TopicUnavailable(
        f"topic {spec.name} does not exist and cannot be created ({reason}): create it with"
        " `sparklag topics create` and a user that may"
    )

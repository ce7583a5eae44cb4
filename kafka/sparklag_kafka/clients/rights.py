"""What a user may do with topics and groups: each right is tried, and nothing is written."""

from __future__ import annotations

from typing import Final

from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.structs import TopicPartition

from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.clients.consumer import ContractConsumer
from sparklag_kafka.errors import KafkaUnavailable
from sparklag_kafka.protocol.error_codes import TOPIC_FORBIDDEN
from sparklag_schemas import ResolvedSettings

_NO_SUCH_PARTITION: Final = 2**31 - 2
_PRODUCE_TIMEOUT_MS: Final = 5_000
_FETCH_TIMEOUT_MS: Final = 1_000


async def may_write(pool: BrokerPool, topic: str) -> bool:
    """Raises KafkaUnavailable."""
    # Kafka checks the right before the partition: a write to a partition that cannot exist shows
    # whether the right is there, and writes nothing.
    request = ProduceRequest(
        transactional_id=None,
        required_acks=1,
        timeout=_PRODUCE_TIMEOUT_MS,
        topics=[(topic, [(_NO_SUCH_PARTITION, b"")])],
    )
    response = await pool.first_response(request)
    if response is None:
        raise KafkaUnavailable("no broker answers")
    (_, ((_, error_code, *_),)), *_ = response.topics
    return bool(error_code != TOPIC_FORBIDDEN)


async def may_read(settings: ResolvedSettings, topic: str) -> bool:
    """Raises one of KAFKA_FAILURES."""
    partition = TopicPartition(topic, 0)
    consumer = ContractConsumer(settings, _ignore_unreadable, auto_offset_reset="latest")
    consumer.assign([partition])
    try:
        await consumer.start()
        await consumer.getmany(partition, timeout_ms=_FETCH_TIMEOUT_MS)
    except TopicAuthorizationFailedError:
        return False
    finally:
        await consumer.stop()
    return True


async def may_use_group(settings: ResolvedSettings, group_id: str, topic: str) -> bool:
    """Whether `group_id` may read and commit offsets; `topic` is any that exists. Raises one of
    KAFKA_FAILURES."""
    partition = TopicPartition(topic, 0)
    consumer = ContractConsumer(settings, _ignore_unreadable, group_id=group_id)
    consumer.assign([partition])
    try:
        await consumer.start()
        # Kafka leaves out topics that may not be described: they count as without a commit.
        await consumer.committed(partition)
    except GroupAuthorizationFailedError:
        return False
    finally:
        await consumer.stop()
    return True


def _ignore_unreadable(first: int, after: int, reason: str) -> None:
    """Unreadable records do not matter here."""

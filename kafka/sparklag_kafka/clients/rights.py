"""What a user may do with topics and groups.

Each right is tried with a partition that cannot exist: Kafka checks the right first, so nothing is
written.
"""

from __future__ import annotations

from typing import Any, Final

from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.produce import ProduceRequest

from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.errors import KafkaUnavailable
from sparklag_kafka.protocol.error_codes import GROUP_FORBIDDEN, TOPIC_FORBIDDEN

_NO_SUCH_PARTITION: Final = 2**31 - 2
_PRODUCE_TIMEOUT_MS: Final = 5_000


async def may_write(pool: BrokerPool, topic: str) -> bool:
    """Raises KafkaUnavailable."""
    request = ProduceRequest(
        transactional_id=None,
        required_acks=1,
        timeout=_PRODUCE_TIMEOUT_MS,
        topics=[(topic, [(_NO_SUCH_PARTITION, b"")])],
    )
    return await _error_code(pool, request) != TOPIC_FORBIDDEN


async def may_read(pool: BrokerPool, topic: str) -> bool:
    """Raises KafkaUnavailable."""
    request = FetchRequest(
        max_wait_time=0,
        min_bytes=0,
        max_bytes=1,
        isolation_level=0,
        topics=[(topic, [(_NO_SUCH_PARTITION, 0, 1)])],
    )
    return await _error_code(pool, request) != TOPIC_FORBIDDEN


async def may_use_group(pool: BrokerPool, group_id: str, topic: str) -> bool:
    """Whether `group_id` may commit offsets; `topic` is any that exists. Raises
    KafkaUnavailable."""
    request = OffsetCommitRequest(
        group_id,
        OffsetCommitRequest.DEFAULT_GENERATION_ID,
        "",
        OffsetCommitRequest.DEFAULT_RETENTION_TIME,
        [(topic, [(_NO_SUCH_PARTITION, 0, "")])],
    )
    return await _error_code(pool, request) != GROUP_FORBIDDEN


async def _error_code(pool: BrokerPool, request: Any) -> int:
    """Of the one partition in the request."""
    response = await pool.first_response(request)
    if response is None:
        raise KafkaUnavailable("no broker answers")
    (_, ((_, error_code, *_),)), *_ = response.topics
    return int(error_code)

"""Reading the two topics: whatever stands there, and however long Kafka is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord

from sparklag_schemas import ContractError, LagEvent, Observation, Settings
from sparklag_schemas.connection import explain_failure
from sparklag_service.counters import Counters
from sparklag_service.errors import ReadingInterrupted

_log = logging.getLogger(__name__)
_RETRY_S = 2.0

Message = TypeVar("Message", Observation, LagEvent)


def decoded(
    record: ConsumerRecord, decode: Callable[[bytes], Message], counters: Counters
) -> Message | None:
    """The message in `record`. One that does not keep the contract is counted, logged with its
    place, and None."""
    try:
        return decode(record.value)
    except ContractError as error:
        counters.malformed += 1
        _log.warning(
            "skipped a message at %s[%d]@%d: %s",
            record.topic,
            record.partition,
            record.offset,
            error,
        )
        return None


async def keep_reading(
    read: Callable[[], Awaitable[None]],
    topic: str,
    settings: Settings,
    bootstrap_servers: str,
    counters: Counters,
    on_failure: Callable[[str], None],
) -> None:
    """Call `read` again whenever Kafka fails it, until cancelled. `on_failure` is told why."""
    while True:
        try:
            await read()
        except (KafkaError, ReadingInterrupted, OSError, asyncio.TimeoutError) as error:
            counters.reads_failed += 1
            cause = await explain_failure(bootstrap_servers, settings.kafka)
            reason = f"topic {topic}: {cause or str(error) or type(error).__name__}"
            on_failure(reason)
            _log.warning("reading %s; trying again", reason)
        await asyncio.sleep(_RETRY_S)

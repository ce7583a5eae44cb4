"""Reading the two topics: whatever stands there, and however long Kafka is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord

from sparklag_schemas import ContractError, Settings
from sparklag_schemas.connection import explain_error
from sparklag_schemas.errors import RegistryError
from sparklag_schemas.formats import MessageReader
from sparklag_schemas.portions import by_size
from sparklag_service.counters import Counters
from sparklag_service.errors import ReadingInterrupted

_log = logging.getLogger(__name__)
_RETRY_S = 2.0
_TURN_BYTES = 256 * 1024

Message = TypeVar("Message")


def decoded(
    record: ConsumerRecord, reader: MessageReader[Message], counters: Counters
) -> Message | None:
    """The message in `record`. One that does not keep the contract is counted, logged with its
    place, and None."""
    try:
        return reader.decode(record.value)
    except ContractError as error:
        skip(record, str(error), counters)
        return None


def skip(record: ConsumerRecord, why: str, counters: Counters) -> None:
    """Count a message that is not taken, and log it with its place."""
    counters.malformed += 1
    _log.warning(
        "skipped a message at %s[%d]@%d: %s", record.topic, record.partition, record.offset, why
    )


async def short_turns(
    records: Iterable[ConsumerRecord], reader: MessageReader[Message]
) -> AsyncIterator[list[ConsumerRecord]]:
    """The records, in parts that `reader` can decode, and without holding the loop for long.

    Raises RegistryError where nobody can tell what they are written in.
    """
    for turn in by_size(records, lambda record: len(record.value or b""), _TURN_BYTES):
        await reader.learn(record.value for record in turn)
        yield turn


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
        except (
            KafkaError,
            RegistryError,
            ReadingInterrupted,
            OSError,
            asyncio.TimeoutError,
        ) as error:
            counters.reads_failed += 1
            cause = await explain_error(error, bootstrap_servers, settings.kafka)
            reason = f"topic {topic}: {cause}"
            on_failure(reason)
            _log.warning("reading %s; trying again", reason)
        await asyncio.sleep(_RETRY_S)

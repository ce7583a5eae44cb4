"""Reading sparklag's topics however long Kafka is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sparklag_kafka.access import explain_error
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_schemas import ResolvedSettings
from sparklag_schemas.errors import RegistryError
from sparklag_service.counters import Counters
from sparklag_service.errors import ReadingInterrupted

_log = logging.getLogger(__name__)
_RETRY_S = 2.0


async def read_with_retry(
    read: Callable[[], Awaitable[None]],
    topic: str,
    settings: ResolvedSettings,
    counters: Counters,
    on_failure: Callable[[str], None],
) -> None:
    """Call `read` again whenever Kafka fails, until cancelled. `on_failure` takes the reason."""
    while True:
        try:
            await read()
        except (*KAFKA_FAILURES, RegistryError, ReadingInterrupted) as error:
            counters.reads_failed += 1
            cause = await explain_error(error, settings.access)
            reason = f"cannot read topic {topic}: {cause}"
            on_failure(reason)
            _log.warning("%s; trying again", reason)
        await asyncio.sleep(_RETRY_S)

"""Questions about many groups, asked of brokers of any version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from sparklag_kafka.brokers.connection import BrokerConnection
from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.errors import OneGroupPerRequest
from sparklag_kafka.protocol.groups import (
    Coordinator,
    FindCoordinatorRequest,
)
from sparklag_kafka.protocol.offset_fetch import OffsetFetchAnswer, OffsetFetchRequest
from sparklag_schemas.runtime.chunks import by_count

GROUPS_AT_ONCE: Final = 500
"""In one request."""


async def coordinators(brokers: BrokerPool, groups: Sequence[str]) -> AsyncIterator[Coordinator]:
    """Who coordinates each of these, as some broker says. It ends where none answers."""
    for some in by_count(groups, GROUPS_AT_ONCE):
        together = await brokers.first_response(FindCoordinatorRequest(some))
        if together is not None:
            for found in together.read():
                yield found
            continue
        for group in some:
            # Older than Kafka 3.0, they take one at a time.
            alone = await brokers.first_response(FindCoordinatorRequest([group]))
            if alone is None:
                return
            for found in alone.read():
                yield found


async def fetch_offsets(
    connection: BrokerConnection, groups: Sequence[str]
) -> list[OffsetFetchAnswer]:
    """All that these groups, at most GROUPS_AT_ONCE, have committed, as their coordinator says.

    Raises one of KAFKA_FAILURES.
    """
    answers: list[OffsetFetchAnswer]
    try:
        answers = [await connection.send(OffsetFetchRequest(groups))]
    except OneGroupPerRequest:
        answers = await asyncio.gather(*(connection.send(OffsetFetchRequest([g])) for g in groups))
    return answers

"""Questions about many groups, asked of brokers of any version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from sparklag_kafka.brokers.connection import BrokerConnection
from sparklag_kafka.brokers.first_answer import first_answer
from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.protocol.groups import (
    Coordinator,
    FindCoordinatorRequest,
    OnlyOneAtATime,
)
from sparklag_kafka.protocol.offset_fetch import OffsetFetchAnswer, OffsetFetchRequest
from sparklag_schemas.runtime.chunks import by_count

GROUPS_AT_ONCE: Final = 500
"""In one request."""


async def coordinators(brokers: BrokerPool, groups: Sequence[str]) -> AsyncIterator[Coordinator]:
    """Who coordinates each of these, as some broker says. It ends where none answers."""
    for some in by_count(groups, GROUPS_AT_ONCE):
        together = await first_answer(brokers.links(), FindCoordinatorRequest(some))
        if together is not None:
            for found in together.answer.read():
                yield found
            continue
        for group in some:
            # Older than Kafka 3.0, they take one at a time.
            alone = await first_answer(brokers.links(), FindCoordinatorRequest([group]))
            if alone is None:
                return
            for found in alone.answer.read():
                yield found


async def fetch_offsets(link: BrokerConnection, groups: Sequence[str]) -> list[OffsetFetchAnswer]:
    """All that these groups, at most GROUPS_AT_ONCE, have committed, as their coordinator says.

    Raises one of BROKER_FAILURES.
    """
    answers: list[OffsetFetchAnswer]
    try:
        answers = [await link.ask(OffsetFetchRequest(groups))]
    except OnlyOneAtATime:
        answers = await asyncio.gather(*(link.ask(OffsetFetchRequest([g])) for g in groups))
    return answers

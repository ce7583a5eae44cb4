"""One question to whichever broker answers first."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from sparklag_kafka.brokers.connection import BROKER_FAILURES, BrokerConnection

_HEDGE_S: Final = 1.0
"""So long one broker is waited for before the next is asked as well."""


class FirstAnswer(NamedTuple):
    """Who answered, and what."""

    link: BrokerConnection
    answer: Any


async def first_answer(links: Iterable[BrokerConnection], request: Any) -> FirstAnswer | None:
    """None where no broker answers."""
    asking: dict[asyncio.Task[Any], BrokerConnection] = {}
    rest = iter(links)
    try:
        while True:
            link = next(rest, None)
            if link is not None:
                asking[asyncio.ensure_future(link.ask(request))] = link
            if not asking:
                return None
            done, _ = await asyncio.wait(
                asking,
                timeout=None if link is None else _HEDGE_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            answers = []
            for task in done:
                asked = asking.pop(task)
                error = task.exception()
                if error is None:
                    answers.append(FirstAnswer(asked, task.result()))
                elif not isinstance(error, BROKER_FAILURES):
                    raise error
            if answers:
                return answers[0]
    finally:
        for task in asking:
            task.cancel()

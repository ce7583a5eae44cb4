"""Intakes: everything that knows where a query is. A new kind of source is one new file here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sparklag_schemas import Observation
from sparklag_schemas.queue import NewestQueue


@dataclass(frozen=True)
class Delivery:
    """An observation, and what to call once the lag event it caused is safe."""

    observation: Observation
    done: Callable[[], None]


def delivery_queue(limit: int, on_superseded: Callable[[], None]) -> NewestQueue[Delivery]:
    """The queue between intakes and tracker: when behind, the newest of a query counts."""

    def superseded(delivery: Delivery) -> None:
        on_superseded()
        delivery.done()

    return NewestQueue(limit, lambda delivery: delivery.observation.query_id, superseded)


class Intake(Protocol):
    """Puts deliveries on the queue it was made with."""

    @property
    def ready(self) -> str | None:
        """None, or why nothing can be taken in yet."""

    def adopts(self, query_id: str) -> bool:
        """Whether this instance is to measure a query that nobody measures."""

    def keeps(self, query_id: str) -> bool:
        """Whether this instance still answers for a query it measures."""

    def pause(self) -> None:
        """Take nothing more in; what was taken goes on to be done."""

    async def run(self) -> None:
        """Take in until cancelled; then leave nothing behind that was done and not said so."""

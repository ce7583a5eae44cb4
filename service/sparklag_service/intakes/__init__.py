"""Intakes: everything that knows where a query is. A new kind of source is one new file here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sparklag_schemas import Observation
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_service.counters import Counters


@dataclass(frozen=True)
class Delivery:
    """An observation, and what to call once the lag event it caused is safe."""

    observation: Observation
    done: Callable[[], None]
    offset: int | None = None
    """Its place on the topic. None: it comes straight from where it was made, once."""


def nothing_to_do() -> None:
    """What to call for an observation that nobody waits for: it is made again."""


def delivery_queue(limit: int, counters: Counters) -> NewestQueue[Delivery]:
    """The queue between intakes and tracker: when behind, the newest of a query counts."""

    def superseded(delivery: Delivery) -> None:
        counters.superseded += 1
        delivery.done()

    return NewestQueue(limit, lambda delivery: delivery.observation.query_id, superseded)


class RebalanceHandler(Protocol):
    """Who answers for the queries an intake gains and loses."""

    async def on_revoked(self) -> None:
        """Release the queries that the intake owns no more; return once nothing of them is in
        flight. Their pending observations are dropped: the next owner reads them again."""

    async def on_assigned(self) -> None:
        """Adopt the queries that the intake owns now; return once all that was published of them is
        read."""


class Intake(Protocol):
    """Puts deliveries on the queue it was made with."""

    @property
    def ready(self) -> str | None:
        """None, or why nothing can be taken in yet."""

    @property
    def caught_up_s(self) -> float | None:
        """When (`time.monotonic()`) every message was taken in. None: not known."""

    @property
    def behind(self) -> int | None:
        """How many messages are not taken in yet. None: not known."""

    def may_adopt(self, query_id: str) -> bool:
        """Whether this instance is to measure a query that nobody measures."""

    def owns(self, query_id: str) -> bool:
        """Whether a query that this instance measures is still its own."""

    def pause(self) -> None:
        """Take nothing more in; what was taken goes on to be done."""

    async def run(self, handler: RebalanceHandler) -> None:
        """Take in until cancelled; then commit what is done. `handler` is called when the queries
        that this intake owns change."""


class Watcher(Protocol):
    """An intake beside that: it looks by itself where queries are, at those this instance owns.

    A query that it finds where it was is said again at each heartbeat: so it still is there.
    """

    name: str
    """Of its task."""

    @property
    def failing(self) -> Mapping[str, str]:
        """What cannot be looked at, and why."""

    async def run(self) -> None:
        """Look until cancelled."""

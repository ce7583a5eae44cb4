"""Intakes: everything that observes the positions of queries. See `sources` for a new kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from sparklag_schemas import Observation, ResolvedSettings
from sparklag_schemas.messages.headers import SpanContext
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_service.counters import Counters


class BatchTrace(NamedTuple):
    """The trace context of an observation. `written_at_ms` is the time of its record, by the clock
    of its driver or of the broker; `received_at_ms` is by this service's clock."""

    context: SpanContext
    written_at_ms: int
    received_at_ms: int


@dataclass(frozen=True)
class Delivery:
    """An observation, and what to call once the lag event it caused is acknowledged."""

    observation: Observation
    done: Callable[[], None]
    offset: int | None = None
    """The offset of its record on the topic. None: it comes straight from its source."""
    trace: BatchTrace | None = None


def nothing_to_do() -> None:
    """The `done` of an observation whose source is read again anyway."""


def delivery_queue(limit: int, counters: Counters) -> NewestQueue[Delivery]:
    """The queue between intakes and tracker: when behind, the newest of a query counts."""

    def superseded(delivery: Delivery) -> None:
        counters.superseded += 1
        delivery.done()

    return NewestQueue(limit, lambda delivery: delivery.observation.query_id, superseded)


class RebalanceHandler(Protocol):
    """Called when an intake gains or loses queries."""

    async def on_revoked(self) -> None:
        """Release the queries that the intake owns no more; return once nothing of them is in
        flight. Their pending observations are dropped: the next owner reads them again."""

    async def on_assigned(self) -> None:
        """Adopt the queries that the intake owns now; return once all that was published of them is
        read."""

    def tracks(self, query_id: str) -> bool:
        """Return whether the query is tracked already."""


class Intake(Protocol):
    """Puts deliveries on the queue it was made with."""

    @property
    def ready(self) -> str | None:
        """The reason why nothing can be taken in yet, or None."""

    @property
    def caught_up_s(self) -> float | None:
        """The last time (`time.monotonic()`) at which no message was left. None: unknown."""

    @property
    def behind(self) -> int | None:
        """The number of messages that are not taken in yet. None: unknown."""

    def may_adopt(self, query_id: str) -> bool:
        """Return whether this instance is to measure a query that nobody measures."""

    def owns(self, query_id: str) -> bool:
        """Return whether a query that this instance measures is still its own."""

    def pause(self) -> None:
        """Take nothing more in; what was taken goes on to be done."""

    async def run(self, handler: RebalanceHandler) -> None:
        """Take in until cancelled; then commit what is done."""


class TrackedQuery(Protocol):
    """The part of a tracked query's state that watchers read."""

    @property
    def run_id(self) -> str | None:
        """None: no driver reports it."""

    @property
    def cluster(self) -> str:
        """The alias its driver gives."""

    @property
    def checkpoint_location(self) -> str | None:
        """The location its driver reports."""

    @property
    def ended(self) -> bool:
        """True once it was stopped, or failed."""


class Watcher(Protocol):
    """Reads the positions of queries from another source than the topic.

    It observes a query when its position changes (`processed_at` is then the time of the change),
    and again when it is read `heartbeat_s` later, with the same `processed_at`: so the query can
    still be read.
    """

    name: str
    """Unique: the name of its task."""

    @property
    def failing(self) -> Mapping[str, str]:
        """The reasons why something cannot be read, by what it is."""

    async def run(self) -> None:
        """Read until cancelled."""


@dataclass(frozen=True)
class SourceContext:
    """The arguments of a watcher."""

    settings: ResolvedSettings
    queue: NewestQueue[Delivery]
    """Takes its observations."""
    watches: Callable[[str], bool]
    """Returns whether this instance reads the position of a query id: an observation of another
    query is discarded."""
    queries: Mapping[str, TrackedQuery]
    """The queries that this instance tracks, as they change."""
    group_poll_s: dict[str, Mapping[int, float]] = field(default_factory=dict)
    """The duration of the last read of groups, by cluster and coordinator."""

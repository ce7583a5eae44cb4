"""Intakes observe the positions of queries. See `sources` for a new kind of source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from sparklag_schemas import Observation, ResolvedSettings
from sparklag_schemas.messages.headers import SpanContext
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_service.counters import Counters


class BatchTrace(NamedTuple):
    """The trace context of an observation. `written_at_ms`: the time of its record, by the clock of
    the driver or the broker. `received_at_ms`: by this service's clock."""

    context: SpanContext
    written_at_ms: int
    received_at_ms: int


@dataclass(frozen=True)
class Delivery:
    """An observation, and the callback for when the lag event that covers it is acknowledged."""

    observation: Observation
    done: Callable[[], None]
    offset: int | None = None
    """The offset of its record on the topic. None: it comes straight from its source."""
    trace: BatchTrace | None = None


def nothing_to_do() -> None:
    """The `done` of an observation whose source is read again at intervals."""


def delivery_queue(limit: int, counters: Counters) -> NewestQueue[Delivery]:
    """The queue between intakes and tracker. It keeps the newest delivery of each query."""

    def superseded(delivery: Delivery) -> None:
        counters.superseded += 1
        delivery.done()

    return NewestQueue(limit, lambda delivery: delivery.observation.query_id, superseded)


class RebalanceHandler(Protocol):
    """Called when an intake gains or loses queries."""

    async def on_revoked(self) -> None:
        """Release the queries that the intake no longer owns; return once none of their events is
        in flight. Drop their pending observations: the next owner reads them again."""

    async def on_assigned(self) -> None:
        """Adopt the queries that the intake now owns; return once all their published events are
        read."""

    def tracks(self, query_id: str) -> bool:
        """Return whether the query is tracked already."""


class Intake(Protocol):
    """Puts deliveries on the queue."""

    @property
    def ready(self) -> str | None:
        """Why the intake receives nothing yet, or None."""

    @property
    def caught_up_s(self) -> float | None:
        """The last time (`time.monotonic()`) at which every message was received. None: unknown."""

    @property
    def behind(self) -> int | None:
        """The number of messages that are not received yet. None: unknown."""

    def may_adopt(self, query_id: str) -> bool:
        """Return whether this instance should measure a query that no instance measures."""

    def owns(self, query_id: str) -> bool:
        """Return whether this instance still owns a query that it measures."""

    def pause(self) -> None:
        """Receive no more messages; continue to process those received."""

    async def run(self, handler: RebalanceHandler) -> None:
        """Receive messages until cancelled; then commit the offsets that are done."""


class TrackedQuery(Protocol):
    """The part of a tracked query's state that watchers read."""

    @property
    def run_id(self) -> str | None:
        """None: no driver reports the query."""

    @property
    def cluster(self) -> str:
        """The cluster alias that its driver reports."""

    @property
    def checkpoint_location(self) -> str | None:
        """The location its driver reports."""

    @property
    def ended(self) -> bool:
        """True once the query was stopped, or failed."""


class Watcher(Protocol):
    """Reads the positions of queries from another source than the topic.

    A watcher observes a query when its position changes; `processed_at` is then the time of the
    change. It repeats the observation after `heartbeat_s`, with the same `processed_at`: this shows
    that the query can still be read.
    """

    name: str
    """Unique: the name of its task."""

    @property
    def failing(self) -> Mapping[str, str]:
        """Why a source cannot be read, by the name of the source."""

    async def run(self) -> None:
        """Read until cancelled."""


@dataclass(frozen=True)
class SourceContext:
    settings: ResolvedSettings
    queue: NewestQueue[Delivery]
    watches: Callable[[str], bool]
    """Returns whether this instance reads the position of a query id. Observations of other queries
    are discarded."""
    queries: Mapping[str, TrackedQuery]
    """The queries that this instance tracks; updated in place."""
    group_poll_s: dict[str, Mapping[int, float]] = field(default_factory=dict)
    """The duration of the last read of groups, by cluster and coordinator."""

"""Observations that no acknowledged event covers yet."""

from __future__ import annotations

from typing import NamedTuple

from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_service.counters import Counters
from sparklag_service.intakes import Delivery
from sparklag_service.tracking.query_state import QueryState


class _Waiting(NamedTuple):
    """The newest delivery of a query's driver, that of a watcher, or both in this order; and the
    state after them."""

    deliveries: tuple[Delivery, ...]
    state: QueryState


class PendingObservations:
    """The newest deliveries of each query, taken from `queue`. Each is settled, once an event that
    covers it is acknowledged, or dropped, for the next owner of its query."""

    def __init__(self, queue: NewestQueue[Delivery], counters: Counters) -> None:
        self._queue = queue
        self._counters = counters
        self._waiting: dict[str, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, query_id: str) -> bool:
        return query_id in self._waiting

    def add(self, delivery: Delivery, state: QueryState) -> None:
        """`state` is that after `delivery`."""
        query_id = state.query_id
        older = self._waiting.get(query_id)
        deliveries = self._together(older.deliveries if older else (), (delivery,))
        self._waiting[query_id] = _Waiting(deliveries, state)

    def state(self, query_id: str) -> QueryState | None:
        """The state of a query that is still to be published, if any."""
        waiting = self._waiting.get(query_id)
        return waiting.state if waiting is not None else None

    def covered(self, state: QueryState) -> tuple[Delivery, ...]:
        """The deliveries that an event measured from `state` covers."""
        waiting = self._waiting.get(state.query_id)
        return waiting.deliveries if waiting is not None and waiting.state is state else ()

    def take(self, query_id: str) -> tuple[Delivery, ...]:
        """Remove and return the deliveries of a query."""
        waiting = self._waiting.pop(query_id, None)
        return waiting.deliveries if waiting is not None else ()

    def put_back(self, deliveries: tuple[Delivery, ...], state: QueryState) -> None:
        """Deliveries that were taken and could not be published. Newer ones may have come."""
        newer = self._waiting.get(state.query_id)
        if newer is not None:
            together = self._together(deliveries, newer.deliveries)
            self._waiting[state.query_id] = _Waiting(together, newer.state)
        elif deliveries:
            self._waiting[state.query_id] = _Waiting(deliveries, state)

    def settle(self, *deliveries: Delivery) -> None:
        """An event that covers them is published."""
        for delivery in deliveries:
            delivery.done()
            self._queue.task_done()

    def drop_queued(self) -> None:
        """Drop what is on the queue and was not tracked yet."""
        while not self._queue.empty():
            self.drop(self._queue.get_nowait())

    def drop(self, *deliveries: Delivery) -> None:
        """They are not done here: the next owner of their query reads them again."""
        for _ in deliveries:
            self._queue.task_done()

    def _together(
        self, older: tuple[Delivery, ...], newer: tuple[Delivery, ...]
    ) -> tuple[Delivery, ...]:
        """What is left to publish: a newer delivery covers an older one, but a watcher's does not
        cover a driver's."""
        from_driver = any(delivery.observation.run_id is not None for delivery in newer)
        kept = []
        for delivery in older:
            if delivery.observation.run_id is not None and not from_driver:
                kept.append(delivery)
            else:
                self._counters.superseded += 1
                self.settle(delivery)
        return (*kept, *newer)

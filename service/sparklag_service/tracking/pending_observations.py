"""Observations that no acknowledged event covers yet."""

from __future__ import annotations

from collections.abc import Mapping

from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_service.counters import Counters
from sparklag_service.intakes import Delivery
from sparklag_service.tracking.query_state import QueryState


class PendingObservations:
    """The newest delivery of each query, taken from `queue`. Each is settled, once an event that
    covers it is acknowledged, or dropped, for the next owner of its query."""

    def __init__(
        self,
        queue: NewestQueue[Delivery],
        queries: Mapping[str, QueryState],
        counters: Counters,
    ) -> None:
        """`queries`: the tracked ones, as they change."""
        self._queue = queue
        self._queries = queries
        self._counters = counters
        self._deliveries: dict[str, Delivery] = {}

    def __len__(self) -> int:
        return len(self._deliveries)

    def __contains__(self, query_id: str) -> bool:
        return query_id in self._deliveries

    def add(self, delivery: Delivery) -> None:
        """It was tracked. It covers an older one of its query; but a watcher's does not replace a
        driver's, which gives the cause of the event, and is settled at once: its source is read
        again."""
        query_id = delivery.observation.query_id
        older = self._deliveries.get(query_id)
        if older is not None:
            if _is_driver(older) and not _is_driver(delivery):
                self.settle(delivery)
                return
            self._counters.superseded += 1
            self.settle(older)
        self._deliveries[query_id] = delivery

    def covered(self, state: QueryState) -> Delivery | None:
        """The delivery that an event measured from `state` covers."""
        is_current = self._queries.get(state.query_id) is state
        return self._deliveries.get(state.query_id) if is_current else None

    def take(self, query_id: str) -> Delivery | None:
        """Remove and return the delivery of a query."""
        return self._deliveries.pop(query_id, None)

    def put_back(self, delivery: Delivery) -> None:
        """It was taken and could not be published. A newer one may have come."""
        newer = self.take(delivery.observation.query_id)
        self.add(delivery)
        if newer is not None:
            self.add(newer)

    def settle(self, delivery: Delivery | None) -> None:
        """An event that covers it, if there is one, is published."""
        if delivery is not None:
            delivery.done()
            self._queue.task_done()

    def drop_queued(self) -> None:
        """Drop what is on the queue and was not tracked yet."""
        while not self._queue.empty():
            self.drop(self._queue.get_nowait())

    def drop(self, delivery: Delivery | None) -> None:
        """It is not done here: the next owner of its query reads it again."""
        if delivery is not None:
            self._queue.task_done()


def _is_driver(delivery: Delivery) -> bool:
    return delivery.observation.run_id is not None

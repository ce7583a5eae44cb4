"""What waits for an acknowledged event: each delivery ends settled or dropped, once."""

from __future__ import annotations

import pytest

from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_service.counters import Counters
from sparklag_service.intakes import Delivery, delivery_queue
from sparklag_service.tracking.pending_observations import PendingObservations
from sparklag_service.tracking.query_state import QueryState
from tests.messages import QUERY_ID, observation
from tests.service.states import state


class Deliveries:
    """Deliveries taken from a queue, and which of them are done."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.queue: NewestQueue[Delivery] = delivery_queue(100, Counters())
        self.counters = Counters()
        self.queries: dict[str, QueryState] = {}
        self.unpublished = PendingObservations(self.queue, self.queries, self.counters)

    def taken(self, name: str, *, by_driver: bool = True) -> Delivery:
        """One that was put on the queue and taken from it."""
        received = observation(observation_id=name, run_id="run" if by_driver else None)
        self.queue.put_nowait(Delivery(received, lambda: self.done.append(name)))
        return self.queue.get_nowait()

    def track(self, name: str, state: QueryState, *, by_driver: bool = True) -> None:
        """Take one, and add it: `state` is the newest of its query."""
        self.queries[QUERY_ID] = state
        self.unpublished.add(self.taken(name, by_driver=by_driver))

    def covered(self, state: QueryState) -> str | None:
        """The name of the delivery that an event of this state covers."""
        delivery = self.unpublished.covered(state)
        return None if delivery is None else delivery.observation.observation_id


@pytest.fixture
async def deliveries() -> Deliveries:
    return Deliveries()


async def test_a_newer_word_of_a_driver_settles_the_one_before(deliveries: Deliveries) -> None:
    first, second = state(batch_id=1), state(batch_id=2)
    deliveries.track("a", first)
    deliveries.track("b", second)
    assert deliveries.done == ["a"]
    assert deliveries.counters.superseded == 1
    assert deliveries.covered(first) is None
    assert deliveries.covered(second) == "b"


async def test_what_a_watcher_saw_settles_nothing_of_a_driver(deliveries: Deliveries) -> None:
    first, newest = state(batch_id=1), state(batch_id=2)
    deliveries.track("driver", first)
    deliveries.track("look", newest, by_driver=False)
    assert deliveries.done == ["look"]
    # The driver's: it says why.
    assert deliveries.covered(first) is None
    assert deliveries.covered(newest) == "driver"
    deliveries.track("driver again", newest)
    assert deliveries.done == ["look", "driver"]
    assert deliveries.covered(newest) == "driver again"


async def test_what_a_watcher_saw_waits_where_no_driver_reports(deliveries: Deliveries) -> None:
    first, second = state(batch_id=1), state(batch_id=2)
    deliveries.track("look", first, by_driver=False)
    deliveries.track("look again", second, by_driver=False)
    assert deliveries.done == ["look"]
    assert deliveries.covered(second) == "look again"


async def test_what_was_not_published_waits_for_the_newest_state(deliveries: Deliveries) -> None:
    first, second = state(batch_id=1), state(batch_id=2)
    unpublished = deliveries.unpublished
    deliveries.track("driver", first)
    failed = unpublished.take(QUERY_ID)
    assert failed is not None
    assert QUERY_ID not in unpublished
    unpublished.put_back(failed)
    assert deliveries.covered(first) == "driver"
    unpublished.take(QUERY_ID)
    deliveries.track("look", second, by_driver=False)
    unpublished.put_back(failed)
    assert deliveries.covered(second) == "driver"
    assert deliveries.done == ["look"]
    unpublished.take(QUERY_ID)
    deliveries.track("driver again", second)
    unpublished.put_back(failed)
    assert deliveries.covered(second) == "driver again"
    assert deliveries.done == ["look", "driver"]


async def test_what_is_settled_or_dropped_is_done_with_the_queue(deliveries: Deliveries) -> None:
    deliveries.unpublished.settle(deliveries.taken("settled"))
    deliveries.unpublished.drop(deliveries.taken("dropped"))
    assert deliveries.done == ["settled"]
    assert deliveries.queue.unfinished == 0
    assert len(deliveries.unpublished) == 0

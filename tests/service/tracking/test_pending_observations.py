"""What waits for an acknowledged event: each delivery ends settled or dropped, once."""

from __future__ import annotations

import pytest

from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_service.counters import Counters
from sparklag_service.intakes import Delivery, delivery_queue
from sparklag_service.tracking.pending_observations import PendingObservations
from tests.messages import QUERY_ID, observation
from tests.service.states import state


class Deliveries:
    """Deliveries taken from a queue, and which of them are done."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.queue: NewestQueue[Delivery] = delivery_queue(100, Counters())
        self.counters = Counters()
        self.unpublished = PendingObservations(self.queue, self.counters)

    def taken(self, name: str, *, by_driver: bool = True) -> Delivery:
        """One that was put on the queue and taken from it."""
        seen = observation(observation_id=name, run_id="run" if by_driver else None)
        self.queue.put_nowait(Delivery(seen, lambda: self.done.append(name)))
        return self.queue.get_nowait()


@pytest.fixture
async def deliveries() -> Deliveries:
    return Deliveries()


def names(waiting: tuple[Delivery, ...]) -> list[str]:
    return [delivery.observation.observation_id for delivery in waiting]


async def test_a_newer_word_of_a_driver_settles_the_one_before(deliveries: Deliveries) -> None:
    first, second = state(batch_id=1), state(batch_id=2)
    deliveries.unpublished.add(deliveries.taken("a"), first)
    deliveries.unpublished.add(deliveries.taken("b"), second)
    assert deliveries.done == ["a"]
    assert deliveries.counters.superseded == 1
    assert deliveries.unpublished.covered(first) == ()
    assert names(deliveries.unpublished.covered(second)) == ["b"]


async def test_what_a_watcher_saw_does_not_settle_what_a_driver_said(
    deliveries: Deliveries,
) -> None:
    newest = state(batch_id=2)
    deliveries.unpublished.add(deliveries.taken("driver"), state(batch_id=1))
    deliveries.unpublished.add(deliveries.taken("look", by_driver=False), state(batch_id=1))
    deliveries.unpublished.add(deliveries.taken("look again", by_driver=False), newest)
    assert deliveries.done == ["look"]
    # The driver's first: it says why.
    assert names(deliveries.unpublished.covered(newest)) == ["driver", "look again"]
    deliveries.unpublished.add(deliveries.taken("driver again"), newest)
    assert deliveries.done == ["look", "driver", "look again"]
    assert names(deliveries.unpublished.covered(newest)) == ["driver again"]


async def test_what_could_not_be_published_waits_beside_what_came_since(
    deliveries: Deliveries,
) -> None:
    first, second = state(batch_id=1), state(batch_id=2)
    unpublished = deliveries.unpublished
    unpublished.add(deliveries.taken("driver"), first)
    failed = unpublished.take(QUERY_ID)
    assert QUERY_ID not in unpublished
    unpublished.put_back(failed, first)
    assert names(unpublished.covered(first)) == ["driver"]
    failed = unpublished.take(QUERY_ID)
    unpublished.add(deliveries.taken("look", by_driver=False), second)
    unpublished.put_back(failed, first)
    assert unpublished.state(QUERY_ID) is second
    assert names(unpublished.covered(second)) == ["driver", "look"]
    assert deliveries.done == []


async def test_all_that_is_settled_or_dropped_is_done_with_the_queue(
    deliveries: Deliveries,
) -> None:
    deliveries.unpublished.settle(deliveries.taken("settled"))
    deliveries.unpublished.drop(deliveries.taken("dropped"))
    assert deliveries.done == ["settled"]
    assert deliveries.queue.unfinished == 0
    assert len(deliveries.unpublished) == 0

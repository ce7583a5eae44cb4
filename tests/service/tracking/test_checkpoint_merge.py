"""One position of a query whose driver and whose checkpoint both speak of it."""

from __future__ import annotations

import random

import pytest

from sparklag_schemas import Observation, SourcePosition
from sparklag_service.tracking.query_state import QueryState
from tests.messages import OTHER_RUN, QUERY_ID, RUN_ID, observation, position
from tests.service.states import States, evaluated, offsets_at, only

MINUTE_MS = 60_000


def driver(batch_id: int | None, offset: int, at_ms: int = 1_000, **fields: object) -> Observation:
    """A driver: batch `batch_id` ended at `offset` of `orders` 0."""
    return observation(
        **{
            "batch_id": batch_id,
            "sources": [position({"orders": {0: offset}}, topics=["orders"])],
            "observed_at": at_ms,
            "processed_at": at_ms - 100,
            **fields,
        }
    )


def checkpoint(
    batch_id: int | None,
    offset: int | None,
    at_ms: int = 1_500,
    *,
    planned: tuple[int, int] | None = None,
    **fields: object,
) -> Observation:
    """A checkpoint: the same, and the batch after it (its number and its end) if it is planned."""
    return observation(
        **{
            "run_id": None,
            "query": "folder",
            "origin": "checkpoint",
            "cause": "checkpoint",
            "batch_id": batch_id,
            "planned_batch_id": planned and planned[0],
            "observed_at": at_ms,
            "processed_at": None if batch_id is None else at_ms - 10,
            "batch": None,
            "checkpoint_location": "/checkpoints/folder",
            "sources": [
                SourcePosition(
                    source=0,
                    processed=None if offset is None else {"orders": {0: offset}},
                    planned=planned and {"orders": {0: planned[1]}},
                )
            ],
            **fields,
        }
    )


def taken(*observations: Observation) -> QueryState:
    tracker = States()
    for number, one in enumerate(observations):
        offset = number if one.run_id is not None else None
        tracker.observe(one, offset=offset)
    return tracker.queries[QUERY_ID]


def at(query: QueryState) -> tuple[int | None, object, str]:
    (only,) = query.sources
    offset = None if only.processed is None else only.processed["orders"][0]
    return query.batch_id, offset, query.origin


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param([checkpoint(4, 50)], (4, 50, "checkpoint"), id="it alone"),
        pytest.param(
            [driver(4, 50), checkpoint(5, 60)], (5, 60, "checkpoint"), id="an event was lost"
        ),
        # Asynchronous progress tracking: only some batches are written.
        pytest.param(
            [driver(7, 80), checkpoint(5, 60)], (7, 80, "listener"), id="the driver is ahead"
        ),
        pytest.param(
            [driver(4, 50), checkpoint(6, 70), driver(7, 80, 2_000)],
            (7, 80, "listener"),
            id="the driver goes on",
        ),
        pytest.param(
            [driver(7, 80), checkpoint(7, 80), checkpoint(3, 40, 2_000)],
            (3, 40, "checkpoint"),
            id="somebody set it back",
        ),
        pytest.param(
            [driver(7, 80), checkpoint(None, None)], (7, 80, "listener"), id="it has no batch"
        ),
    ],
)
def test_of_a_driver_and_a_checkpoint_the_newer_position_counts(
    observed: list[Observation], expected: tuple[int, int, str]
) -> None:
    query = taken(*observed)
    assert at(query) == expected
    has_driver = len(observed) > 1
    assert query.run_id == (RUN_ID if has_driver else None)
    assert query.query == ("orders" if has_driver else "folder")


def test_of_one_batch_the_driver_knows_more() -> None:
    query = taken(driver(4, 50), checkpoint(4, 50))
    assert at(query) == (4, 50, "listener")
    assert query.batch is not None


@pytest.mark.parametrize("cause", ["progress", "idle", "refresh", "terminated"])
def test_a_driver_that_is_behind_its_checkpoint_does_not_take_the_query_back(cause: str) -> None:
    query = taken(driver(4, 50), checkpoint(6, 70), driver(5, 60, 2_000, cause=cause))
    assert at(query) == (6, 70, "checkpoint")
    assert query.ended == (cause == "terminated")
    assert query.driver_written_at_ms == 2_000


@pytest.mark.parametrize("is_first", [True, False])
def test_a_start_without_data_is_where_the_checkpoint_reports(is_first: bool) -> None:
    begun = observation(
        cause="started",
        run_id=OTHER_RUN,
        batch_id=None,
        processed_at=None,
        batch=None,
        observed_at=1_000 if is_first else 3_000,
        sources=[SourcePosition(source=0, topics=["orders"], isolation_level="read_committed")],
    )
    query = taken(begun, checkpoint(6, 70)) if is_first else taken(checkpoint(6, 70), begun)
    assert at(query) == (6, 70, "checkpoint")
    assert query.run_id == OTHER_RUN
    assert query.sources[0].isolation_level == "read_committed"
    assert query.sources[0].topics == ["orders"]
    assert query.query == "orders"


def test_topics_distinguish_sources_where_a_plan_counts_otherwise() -> None:
    begun = observation(
        cause="started",
        batch_id=None,
        sources=[
            SourcePosition(source=0, topics=["fx"], isolation_level="read_committed"),
            SourcePosition(source=1, topics=["orders"]),
        ],
    )
    read = checkpoint(
        2, None, sources=[position({"orders": {0: 5}}), position({"fx": {0: 6}}, source=1)]
    )
    query = taken(begun, read)
    levels = {tuple(s.processed or ()): s.isolation_level for s in query.sources}
    assert levels == {("orders",): "read_uncommitted", ("fx",): "read_committed"}


def test_a_source_without_data_in_the_last_batch_stays_where_it_was() -> None:
    both = [position({"orders": {0: 5}}), position({"fx": {0: 6}}, source=1)]
    one = [position({"orders": {0: 9}}), SourcePosition(source=1)]
    query = taken(checkpoint(2, None, sources=both), checkpoint(3, None, 2_000, sources=one))
    assert [s.processed for s in query.sources] == [{"orders": {0: 9}}, {"fx": {0: 6}}]


def test_a_batch_long_after_the_drivers_last_message_is_of_another_run() -> None:
    query = taken(driver(4, 50, cause="terminated"), checkpoint(9, 90, 5 * MINUTE_MS))
    assert query.run_id is None
    assert not query.ended


def test_a_batch_just_before_the_drivers_end_is_its_own() -> None:
    query = taken(driver(4, 50, cause="terminated"), checkpoint(5, 60, 1_200))
    assert at(query) == (5, 60, "checkpoint")
    assert query.run_id == RUN_ID
    assert query.ended


def test_a_driver_that_speaks_again_is_the_run_it_was() -> None:
    # Kafka was away: the checkpoint went on without a word.
    query = taken(driver(4, 50), checkpoint(9, 90, 5 * MINUTE_MS), driver(10, 99, 6 * MINUTE_MS))
    assert at(query) == (10, 99, "listener")
    assert query.run_id == RUN_ID
    assert query.other_run_id is None


def test_clocks_that_differ_do_not_silence_a_driver() -> None:
    # The service's clock is an hour ahead of the driver's.
    query = taken(checkpoint(4, 50, 60 * MINUTE_MS), driver(5, 60, 1_000), driver(6, 70, 2_000))
    assert at(query) == (6, 70, "listener")
    assert query.driver_written_at_ms == 2_000


def test_an_observation_read_again_after_the_checkpoint_spoke_is_still_old() -> None:
    tracker = States()
    tracker.observe(driver(4, 50, 1_000), offset=7)
    tracker.observe(checkpoint(4, 50, 1_500))
    assert not tracker.observe(driver(4, 50, 1_000), offset=7)
    assert tracker.queries[QUERY_ID].observation_offset == 7


@pytest.mark.parametrize(
    ("then", "in_flight", "planned", "lag"),
    [
        ([], 8, 58, 20),
        ([driver(4, 50, 2_000, cause="idle")], 8, 58, 20),
        ([driver(4, 50, 2_000, cause="refresh")], 8, 58, 20),
        ([driver(5, 58, 2_000)], None, None, 12),
        ([driver(4, 50, 2_000, cause="terminated")], None, 58, 20),
    ],
    ids=["planned", "idle", "refreshed", "completed", "ended"],
)
def test_what_is_in_flight_is_what_is_planned_and_not_processed(
    then: list[Observation], in_flight: int | None, planned: int | None, lag: int
) -> None:
    query = taken(driver(4, 50), checkpoint(4, 50, planned=(5, 58)), *then)
    event = evaluated(query, offsets_at({0: 70}))
    result = (event.in_flight, only(event).planned_offset, event.total_lag)
    assert result == (in_flight, planned, lag)
    assert event.planned_batch_id == (planned and 5)


def test_the_first_batch_is_in_flight_before_any_has_completed() -> None:
    query = taken(checkpoint(None, None, planned=(0, 58)))
    event = evaluated(query, offsets_at({0: 70}, {0: 0}))
    assert event.total_lag is None
    assert event.planned_batch_id == 0
    assert only(event).planned_offset == 58


def test_what_cannot_be_looked_at_any_more_is_not_called_dead() -> None:
    event = evaluated(taken(checkpoint(4, 50)), offsets_at({0: 70}), silent=True)
    assert (event.status, event.total_lag) == ("UNKNOWN", 20)
    assert "cannot read its checkpoint" in (event.reason or "")


@pytest.mark.parametrize("seed", range(50))
def test_in_any_order_the_query_is_at_the_newest_reported_batch(seed: int) -> None:
    dice = random.Random(seed)
    tracker = States()
    spoken_batch, observed_batch, number = -1, -1, 0
    for step in range(60):
        at_ms = 1_000 + 1_000 * step
        # The driver leads or lags; its events are dropped now and then.
        spoken_batch = max(spoken_batch, dice.randint(0, step))
        if dice.random() < 0.5:
            tracker.observe(driver(spoken_batch, 10 * spoken_batch, at_ms), offset=number)
            number += 1
        else:
            observed_batch = max(observed_batch, dice.randint(0, step))
            tracker.observe(checkpoint(observed_batch, 10 * observed_batch, at_ms))
        query = tracker.queries[QUERY_ID]
        assert query.batch_id is not None
        assert at(query)[1] == 10 * query.batch_id
        assert query.batch_id >= observed_batch
        assert query.batch_id in (spoken_batch, observed_batch) or query.origin == "listener"

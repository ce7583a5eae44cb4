"""The tracker: the newest observation of a query, and a position that is never lost."""

from __future__ import annotations

from sparklag_schemas import SourcePosition
from sparklag_service.evaluator import evaluate
from sparklag_service.tracker import Tracker, restored
from tests.messages import QUERY_ID, lag_event, observation, position
from tests.service.states import measurement, source, state


def processed(tracker: Tracker) -> list[object]:
    return [source.processed for source in tracker.queries[QUERY_ID].sources]


def test_the_newer_observation_replaces_the_older() -> None:
    tracker = Tracker()
    assert tracker.observe(observation(observed_at=1))
    assert tracker.observe(observation(observed_at=2, sources=[position({"orders": {0: 9}})]))
    assert processed(tracker) == [{"orders": {0: 9}}]


def test_an_older_observation_is_not_taken() -> None:
    tracker = Tracker()
    tracker.observe(observation(observed_at=2, sources=[position({"orders": {0: 9}})]))
    assert not tracker.observe(observation(observed_at=1))
    assert processed(tracker) == [{"orders": {0: 9}}]


def test_a_restart_without_data_stands_where_the_last_run_stood() -> None:
    tracker = Tracker()
    tracker.observe(observation(observed_at=1))
    started = observation(
        observed_at=2,
        cause="started",
        run_id="another",
        batch_id=None,
        processed_at=None,
        batch=None,
        sources=[SourcePosition(source=0, topics=["orders"])],
    )
    assert tracker.observe(started)
    assert processed(tracker) == [{"orders": {0: 5}}]
    assert tracker.queries[QUERY_ID].run_id == "another"
    assert tracker.queries[QUERY_ID].batch_id == 41


def test_a_restart_seen_by_a_new_instance_stands_where_the_view_says() -> None:
    tracker = Tracker()
    started = observation(cause="started", batch_id=None, sources=[SourcePosition(source=0)])
    tracker.observe(started, remembered=lag_event(observed_at=1))
    assert processed(tracker) == [{"orders": {0: 5}}]


def test_the_end_of_a_query_is_remembered_with_its_reason() -> None:
    tracker = Tracker()
    tracker.observe(observation(cause="terminated", exception="boom"))
    assert tracker.queries[QUERY_ID].ended
    assert tracker.queries[QUERY_ID].exception == "boom"


def test_a_query_that_starts_again_has_not_ended() -> None:
    tracker = Tracker()
    tracker.observe(observation(observed_at=1, cause="terminated", exception="boom"))
    tracker.observe(observation(observed_at=2, cause="started"))
    assert not tracker.queries[QUERY_ID].ended
    assert tracker.queries[QUERY_ID].exception is None


def test_a_source_without_news_in_one_observation_keeps_its_position() -> None:
    tracker = Tracker()
    both = [position(), position({"returns": {0: 3}}, source=1)]
    tracker.observe(observation(observed_at=1, sources=both))
    news = [position({"orders": {0: 9}}), SourcePosition(source=1)]
    tracker.observe(observation(observed_at=2, sources=news))
    assert processed(tracker) == [{"orders": {0: 9}}, {"returns": {0: 3}}]


def test_a_state_survives_its_way_through_an_event() -> None:
    query = state(
        source({"orders": {0: 5, 1: 6}, "returns": {0: 1}}, topics=("orders", "returns")),
        source({"fx": {0: 2}}, source=1, isolation_level="read_committed", topics=("fx",)),
        cause="refresh",
        batch_id=3,
        processed_at_ms=900,
    )
    event = evaluate(query, measurement({0: 70, 1: 70}), "id", "refresh", "service")
    assert restored(event) == query


def test_a_silent_query_is_found_by_its_last_sign() -> None:
    tracker = Tracker()
    tracker.observe(observation(observed_at=1_000))
    assert list(tracker.unheard_since(1_000)) == []
    assert list(tracker.unheard_since(1_001)) == [QUERY_ID]

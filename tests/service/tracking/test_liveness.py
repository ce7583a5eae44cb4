"""Who is silent: only one that was listened to for all that time."""

from __future__ import annotations

from sparklag_service.tracking.tracked_queries import Liveness

LIMIT_S = 30.0


def silence_of(*, listened_s: int) -> Liveness:
    """Of a query that spoke at 0, and was listened to until then."""
    silence = Liveness(LIMIT_S, 1.0)
    silence.received("q", 0)
    listening(silence, 0, listened_s)
    return silence


def listening(silence: Liveness, begin_s: int, end_s: int) -> None:
    for second in range(begin_s, end_s + 1):
        silence.caught_up(float(second))


def test_a_query_that_reports_nothing_for_longer_than_the_limit_is_silent() -> None:
    silence = silence_of(listened_s=30)
    assert not silence.is_silent("q")
    listening(silence, 31, 31)
    assert silence.is_silent("q")


def test_what_was_silent_before_kafka_went_away_stays_so_until_it_speaks_again() -> None:
    silence = silence_of(listened_s=40)
    assert silence.is_silent("q")
    listening(silence, 200, 201)
    assert silence.is_silent("q")
    silence.received("q", 201)
    assert not silence.is_silent("q")


def test_nobody_is_silent_while_kafka_is_away_nor_just_after() -> None:
    silence = silence_of(listened_s=10)
    # Nothing is heard from 10 to 100: not the query's fault.
    listening(silence, 100, 130)
    assert not silence.is_silent("q")
    listening(silence, 131, 131)
    assert silence.is_silent("q")


def test_one_is_silent_also_where_the_service_refreshes_seldom() -> None:
    silence = Liveness(LIMIT_S, refresh_interval_s=15.0)
    silence.received("q", 0)
    for second in (0.0, 15.0, 31.0):
        silence.caught_up(second)
    assert silence.is_silent("q")


def test_an_adopted_query_has_its_time_unless_it_was_silent_already() -> None:
    silence = Liveness(LIMIT_S, 1.0)
    listening(silence, 0, 100)
    silence.adopt("alive", 100, silent=False)
    silence.adopt("dead", 100, silent=True)
    assert silence.is_silent("dead")
    assert not silence.is_silent("alive")
    listening(silence, 101, 131)
    assert silence.is_silent("alive")


def test_before_anything_was_received_nobody_is_silent() -> None:
    silence = Liveness(LIMIT_S, 1.0)
    silence.received("q", 0)
    assert not silence.is_silent("q")


def test_a_query_that_is_not_known_is_not_silent() -> None:
    silence = Liveness(LIMIT_S, 1.0)
    silence.received("q", 0)
    silence.forget("q")
    listening(silence, 0, 100)
    assert not silence.is_silent("q")

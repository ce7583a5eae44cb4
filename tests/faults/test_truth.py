"""The check itself: it must see what is wrong, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.faults.history import LogHistory, Observed, QueryHistory, TopicLife
from tests.faults.recorder import Published
from tests.faults.truth import Clock, Span, Truth, longest_gap, newest_first_observed

QUERY = "a-query"
TOPIC = "orders"
NOW_S = 1_790_000_000.0
"""When the log ended at 100; each second before it was 10 shorter."""


def log(base: int = 0, until: int = 100) -> LogHistory:
    made = LogHistory(base)
    for end in range(base + 1, until + 1):
        at_s = NOW_S - (until - end) / 10
        made.sending(at_s - 0.05)
        made.acknowledged(end, at_s)
    return made


def observed(offset: int, seconds_ago: float, life: int = 0) -> Observed:
    at_s = NOW_S - seconds_ago
    return Observed(QUERY, int(at_s * 1000), {TOPIC: {0: offset}}, {TOPIC: life}, at_s)


def truth(
    *observations: Observed, lives: list[TopicLife] | None = None, clock: Clock | None = None
) -> Truth:
    history = QueryHistory(QUERY, list(observations))
    history.acknowledged = dict(enumerate(range(len(observations))))
    return Truth({TOPIC: lives or [TopicLife(0.0, {0: log()})]}, {QUERY: history}, clock)


def event(at: Observed, **partition: Any) -> dict[str, Any]:
    """Measured now, from `at`, right unless `partition` differs."""
    processed = at.processed[TOPIC][0]
    whole: dict[str, Any] = {
        "partition": 0,
        "processed_offset": processed,
        "latest_offset": 100,
        "lag": 100 - processed,
        "status": "OK",
        **partition,
    }
    return {
        "query_id": QUERY,
        "observed_at": at.observed_at_ms,
        "measured_at": int(NOW_S * 1000),
        "total_lag": whole["lag"],
        "unknown_partitions": int(whole["lag"] is None),
        "topics": [{"topic": TOPIC, "partitions": [whole]}],
    }


def published(
    message: Mapping[str, Any] | None, offset: int = 0, arrived_s: float = NOW_S, life: int = 0
) -> Published:
    return Published(
        QUERY, None if message is None else dict(message), (life, 0, offset), arrived_s
    )


AT = observed(80, 1.0)


def test_a_right_event_is_right() -> None:
    assert truth(AT).wrong_in(published(event(AT))) == []


@pytest.mark.parametrize(
    ("partition", "what"),
    [
        ({"lag": 21}, "is not 100 - 80"),
        ({"processed_offset": 101, "lag": -1}, "is not"),
        ({"processed_offset": 81, "lag": 19}, "none the query had"),
        ({"latest_offset": 120, "lag": 40}, "latest_offset 120"),
        ({"latest_offset": 60, "processed_offset": 60, "lag": 0}, "none the query had"),
        ({"latest_offset": 85, "lag": 5}, "latest_offset 85"),
        ({"status": "RECREATED"}, "RECREATED with lag 20"),
        ({"status": "UNKNOWN"}, "UNKNOWN with lag 20"),
        ({"lag": None}, "no reason"),
        ({"latest_offset": None}, "latest None"),
    ],
)
def test_a_wrong_event_is_detected(partition: dict[str, Any], what: str) -> None:
    (sentence,) = truth(AT).wrong_in(published(event(AT, **partition)))

    assert what in sentence


def test_a_stale_number_that_names_its_time_is_right() -> None:
    then_ms = int((NOW_S - 1.5) * 1000)

    stale = event(AT, latest_offset=85, lag=5, measured_at=then_ms)

    assert truth(AT).wrong_in(published(stale)) == []


def test_no_number_with_a_reason_is_right() -> None:
    assert truth(AT).wrong_in(published(event(AT, lag=None, reason="it is away"))) == []


def test_a_record_that_was_written_twice_makes_the_log_longer() -> None:
    written_twice = log(until=99)
    written_twice.sending(NOW_S)
    written_twice.acknowledged(101, NOW_S)
    message = event(AT, latest_offset=101, lag=21)

    assert truth(AT).wrong_in(published(message)) != []
    lives = [TopicLife(0.0, {0: written_twice})]
    assert truth(AT, lives=lives).wrong_in(published(message)) == []


def test_sums_are_checked() -> None:
    message = event(AT) | {"total_lag": 19, "unknown_partitions": 1}

    assert len(truth(AT).wrong_in(published(message))) == 2


def test_an_event_of_an_observation_holds_its_position_and_no_other() -> None:
    earlier, later = observed(70, 2.0), observed(80, 1.0)
    mixed = event(later, processed_offset=70, lag=30)

    assert truth(earlier, later).wrong_in(published(mixed)) != []


def test_an_old_position_in_a_new_topic_is_wrong() -> None:
    at = observed(80, 30.0)
    lives = [
        TopicLife(0.0, {0: log(until=90)}, died_s=NOW_S - 20),
        TopicLife(NOW_S - 19, {0: log()}),
    ]

    assert truth(at, lives=lives).wrong_in(published(event(at))) != []
    new = observed(80, 1.0, life=1)
    assert truth(at, new, lives=lives).wrong_in(published(event(new))) == []


def test_a_partition_that_was_added_counts_from_its_beginning() -> None:
    at = Observed(QUERY, AT.observed_at_ms, {TOPIC: {}}, {TOPIC: 0}, AT.sent_s)
    message = event(AT, processed_offset=None, earliest_offset=0, lag=100)

    assert truth(at).wrong_in(published(message)) == []


def test_an_observation_without_an_event_at_it_or_past_it_is_lost() -> None:
    earlier, later = observed(70, 2.0), observed(80, 1.0)

    assert len(list(truth(earlier, later).lost([published(event(earlier))]))) == 1
    assert list(truth(earlier, later).lost([published(event(later))])) == []


def test_an_event_that_came_before_an_observation_does_not_cover_it() -> None:
    stepped_back = Observed(QUERY, 1, {TOPIC: {0: 80}}, {TOPIC: 0}, NOW_S + 5)

    assert len(list(truth(stepped_back).lost([published(event(AT))]))) == 1


def test_a_tombstone_of_a_query_that_lives_is_wrong() -> None:
    assert truth(AT).wrong_in(published(None)) != []


def test_readers_drop_an_older_version_and_begin_anew_with_a_new_topic() -> None:
    earlier, later = observed(70, 2.0), observed(80, 1.0)
    records = [
        published(event(later), 0),
        published(event(earlier), 1),
        published(event(earlier), 0, life=1),
    ]

    accepted, late = newest_first_observed(records)

    assert late == 1
    assert accepted[QUERY] == [records[0], records[2]]


def test_the_longest_gap_is_the_one_that_touches_the_fault() -> None:
    arrivals = (0.0, 5.0, 6.0, 9.0, 10.0, 20.0)
    events = [published(event(AT), n, at_s) for n, at_s in enumerate(arrivals)]

    assert longest_gap(events, Span(6.5, 8.0)) == 3.0
    assert longest_gap(events, Span(6.5, 12.0)) == 10.0
    assert longest_gap([], Span(6.5, 8.0)) is None


def test_recovery_ends_with_a_right_and_whole_event_that_was_read_after_the_fault() -> None:
    ended_s = NOW_S - 0.5
    old = event(AT) | {"measured_at": int((NOW_S - 3) * 1000)}
    events = [
        published(old, 0, NOW_S + 1),
        published(event(AT, lag=None, reason="it is away"), 1, NOW_S + 2),
        published(event(AT), 2, NOW_S + 3),
    ]

    assert truth(AT).recovery(events, ended_s) == pytest.approx(3.5)
    assert truth(AT).recovery(events[:2], ended_s) is None


def test_an_event_that_knows_an_older_position_than_the_query_had_is_no_recovery() -> None:
    earlier, later = observed(70, 2.0), observed(80, 1.0)

    check = truth(earlier, later)

    assert not check.is_fresh(published(event(earlier)), NOW_S - 0.5)
    assert check.is_fresh(published(event(earlier)), NOW_S - 1.5)
    assert check.is_fresh(published(event(later)), NOW_S - 0.5)


def test_at_last_every_partition_is_exact() -> None:
    check = truth(AT)

    assert check.final_problems(published(event(AT)), QUERY, {TOPIC: {0: 100}}) == []
    assert len(check.final_problems(published(event(AT)), QUERY, {TOPIC: {0: 101}})) == 1
    assert len(check.final_problems(None, QUERY, {TOPIC: {0: 101}})) == 1


def test_at_last_nothing_is_known_of_a_topic_that_is_gone() -> None:
    check = truth(AT, lives=[TopicLife(0.0, {0: log()}, died_s=NOW_S)])
    gone = event(AT, lag=None, status="GONE", reason="the topic is gone")

    assert check.final_problems(published(gone), QUERY, {TOPIC: {}}) == []
    assert len(check.final_problems(published(event(AT)), QUERY, {TOPIC: {}})) == 1


def test_a_stepped_clock_is_taken_at_either_of_its_times() -> None:
    message = event(AT) | {"measured_at": int((NOW_S - 3_600) * 1000)}

    assert truth(AT).wrong_in(published(message)) != []
    clock = Clock(offsets_s=(0.0, -3_600.0))
    assert truth(AT, clock=clock).wrong_in(published(message)) == []

"""The tracker: the newest observation of a query, and a position that is never lost."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from sparklag_schemas import Observation, SourcePosition
from sparklag_schemas.settings import ClusterSettings, Settings
from sparklag_schemas.settings.clusters import ClusterNames
from sparklag_service.tracking.query_state import PastRun, QueryState, restored
from tests.messages import OTHER_RUN, QUERY_ID, RUN_ID, lag_event, observation, position
from tests.service.states import States, evaluated, moment, offsets_at, source, state

THIRD_RUN = "79f1bf68-0000-4000-8000-000000000003"


def at(offset: int, **fields: object) -> Observation:
    return observation(**{"sources": [position({"orders": {0: offset}})], **fields})


def started(**fields: object) -> Observation:
    """A run that begins, and says nothing of where it is."""
    return observation(
        **{
            "cause": "started",
            "batch_id": None,
            "processed_at": None,
            "batch": None,
            "sources": [SourcePosition(source=0, topics=["orders"])],
            **fields,
        }
    )


def known(tracker: States) -> QueryState:
    return tracker.queries[QUERY_ID]


def processed(tracker: States) -> list[object]:
    return [source.processed for source in known(tracker).sources]


def tracked(*observations: Observation) -> States:
    tracker = States()
    for offset, observed in enumerate(observations):
        tracker.observe(observed, offset=offset)
    return tracker


@pytest.fixture(name="tracker")
def two_runs() -> States:
    """Run 1 was at 9, at 1 s; then run 2 began, at 2 s, and is at 20."""
    return tracked(
        at(9, observed_at=1_000),
        started(run_id=OTHER_RUN, observed_at=2_000),
        at(20, run_id=OTHER_RUN, observed_at=3_000),
    )


@pytest.mark.parametrize("offset", [3, 2])
def test_an_observation_that_is_read_again_is_not_taken(offset: int) -> None:
    tracker = States()
    tracker.observe(at(9, observed_at=2), offset=3)
    assert not tracker.observe(at(5, observed_at=offset - 1), offset=offset)
    assert processed(tracker) == [{"orders": {0: 9}}]


def test_two_observations_of_one_millisecond_make_two_versions() -> None:
    tracker = tracked(at(5, observed_at=9_000))
    assert tracker.observe(at(6, observed_at=9_000), offset=1)
    assert known(tracker).observed_at == 9_001
    assert not tracker.observe(at(6, observed_at=9_000), offset=1)


def test_processed_offsets_created_anew_begins_at_a_lower_offset() -> None:
    tracker = States()
    tracker.observe(at(5, observed_at=1_000), offset=900)
    assert tracker.observe(at(6, observed_at=2_000), offset=0)
    assert tracker.observe(at(7, observed_at=3_000), offset=1)
    assert processed(tracker) == [{"orders": {0: 7}}]


def test_what_a_producer_wrote_twice_is_not_taken_when_the_query_is_farther() -> None:
    tracker = tracked(at(5, observed_at=1_000, batch_id=41), at(6, observed_at=2_000, batch_id=42))
    assert not tracker.observe(at(5, observed_at=1_000, batch_id=41), offset=2)
    assert not tracker.observe(started(observed_at=900), offset=3)
    assert processed(tracker) == [{"orders": {0: 6}}]


def test_what_was_written_twice_does_not_wake_a_query_that_ended() -> None:
    tracker = tracked(at(5, observed_at=1_000), at(5, observed_at=2_000, cause="terminated"))
    assert not tracker.observe(at(5, observed_at=1_000), offset=2)
    assert known(tracker).ended


def test_without_an_offset_an_observation_comes_from_where_it_was_made_and_is_the_newest() -> None:
    tracker = States()
    tracker.observe(at(5, observed_at=9_000))
    assert tracker.observe(at(6, observed_at=4_000))
    assert (processed(tracker), known(tracker).observed_at) == ([{"orders": {0: 6}}], 9_001)
    assert known(tracker).observation_offset is None


def test_after_an_embedded_service_the_clock_reports_what_is_old() -> None:
    tracker = States()
    event = lag_event(observed_at=1_000, observation_offset=None)
    assert not tracker.observe(at(1, observed_at=999), event, 50)
    assert tracker.observe(at(9, observed_at=1_001), event, 51)


def test_a_restart_without_data_remains_where_the_last_run_stood() -> None:
    tracker = tracked(observation(observed_at=1))
    assert tracker.observe(started(observed_at=2, run_id=OTHER_RUN))
    assert processed(tracker) == [{"orders": {0: 5}}]
    assert known(tracker).run_id == OTHER_RUN
    assert known(tracker).batch_id == 41
    assert known(tracker).processed_at == observation().processed_at


def test_a_start_without_a_known_position_names_its_topics() -> None:
    tracker = tracked(started())
    assert not known(tracker).has_position
    assert known(tracker).sources[0].watched_topics() == ["orders"]


def test_a_source_without_news_in_one_observation_keeps_its_position() -> None:
    tracker = States()
    both = [position(), position({"returns": {0: 3}}, source=1)]
    tracker.observe(observation(observed_at=1, sources=both))
    news = [position({"orders": {0: 9}}), SourcePosition(source=1)]
    tracker.observe(observation(observed_at=2, sources=news))
    assert processed(tracker) == [{"orders": {0: 9}}, {"returns": {0: 3}}]


def test_a_subscription_watches_every_partition_and_an_assignment_its_own() -> None:
    subscribed = source({"orders": {0: 5, 3: 5}}, topics=["orders", "returns"])
    assert subscribed.watched_topics() == ["orders", "returns"]
    assert subscribed.watched_partitions("orders", (0, 1)) == [0, 1, 3]
    assert subscribed.watched_partitions("returns", (0, 1)) == [0, 1]
    assigned = source({"orders": {0: 5}}, assigned={"orders": [0, 2], "returns": [1]})
    assert assigned.watched_topics() == ["orders", "returns"]
    assert assigned.watched_partitions("orders", (0, 1, 2)) == [0, 2]
    assert assigned.watched_partitions("returns", (0, 1)) == [1]
    matched = source({"b": {0: 5}, "a": {0: 1}}, topics=None)
    assert matched.watched_topics() == ["a", "b"]


def test_topics_that_matched_a_pattern_are_watched_on_by_the_next_owner() -> None:
    tracker, pattern = States(), position(topic_pattern="o|r")
    event = evaluated(state(source({"orders": {0: 5}}, matched=("orders", "returns"))), {})
    tracker.observe(observation(sources=[pattern]), event)
    assert known(tracker).sources[0].watched_topics() == ["orders", "returns"]
    assert known(tracker).sources[0].topic_pattern == "o|r"
    named = position(topics=["orders"])
    tracker.observe(observation(observed_at=1_790_000_000_201, sources=[named]), offset=1)
    assert known(tracker).sources[0].watched_topics() == ["orders"]


def test_each_source_is_of_the_cluster_its_brokers_are_of() -> None:
    settings = Settings(clusters={"east": ClusterSettings(bootstrap_servers="east:9092")})
    tracker = States(ClusterNames(settings.resolved("home:9092")).alias_of)
    sources = [
        position(bootstrap_servers="home:9092"),
        position(source=1, bootstrap_servers="east:9092"),
        position(source=2, bootstrap_servers="west:9092"),
    ]
    tracker.observe(observation(sources=sources, cluster="nowhere"))
    assert [source.cluster for source in known(tracker).sources] == ["default", "east", None]


def test_a_run_that_speaks_beside_a_newer_one_is_named_and_moves_nothing(tracker: States) -> None:
    assert tracker.observe(at(12, observed_at=4_000), offset=3)
    assert (known(tracker).run_id, known(tracker).other_run_id) == (OTHER_RUN, RUN_ID)
    assert processed(tracker) == [{"orders": {0: 20}}]
    assert known(tracker).observation_offset == 3


def test_late_messages_of_a_dead_run_are_ignored(tracker: States) -> None:
    assert not tracker.observe(at(9, observed_at=1_999), offset=3)
    assert not tracker.observe(at(9, observed_at=5_000, cause="terminated"), offset=4)
    assert not tracker.observe(started(observed_at=5_000), offset=5)
    assert known(tracker).other_run_id is None
    assert not known(tracker).ended


def test_a_start_that_is_written_again_after_the_end_in_its_millisecond_is_not_taken() -> None:
    tracker = tracked(started(observed_at=1_000), at(9, observed_at=1_000, cause="terminated"))
    assert not tracker.observe(started(observed_at=1_000), offset=2)
    assert known(tracker).ended


def behind(tracker: States, *, now_ms: int, behind_ms: int, cause: str = "started") -> bool:
    written = at(9, run_id=OTHER_RUN, observed_at=now_ms - behind_ms, cause=cause)
    return tracker.observe(written, offset=now_ms, now_ms=now_ms)


def test_a_new_driver_whose_clock_is_behind_follows_one_that_has_ended_or_is_silent() -> None:
    for last in (at(9, observed_at=500_000, cause="terminated"), at(9, observed_at=500_000)):
        tracker = tracked(last)
        after_ms = 1_000 if last.cause == "terminated" else 61_000
        assert behind(tracker, now_ms=500_000 + after_ms, behind_ms=300_000)
        assert (known(tracker).run_id, known(tracker).other_run_id) == (OTHER_RUN, None)


def test_a_driver_whose_clock_is_behind_is_reported_beside_one_that_lives() -> None:
    tracker = tracked(at(9, observed_at=100_000), at(9, observed_at=500_000))
    assert not behind(tracker, now_ms=500_000, behind_ms=200_000)
    assert behind(tracker, now_ms=510_000, behind_ms=200_000, cause="refresh")
    assert (known(tracker).run_id, known(tracker).other_run_id) == (RUN_ID, OTHER_RUN)


def test_a_driver_whose_clock_is_too_far_behind_is_observed_once_it_has_passed_the_last() -> None:
    tracker = tracked(at(9, observed_at=500_000, cause="terminated"))
    assert not behind(tracker, now_ms=600_000, behind_ms=400_001)
    assert behind(tracker, now_ms=900_002, behind_ms=400_001, cause="refresh")
    assert known(tracker).run_id == OTHER_RUN


def test_a_repeated_message_of_any_earlier_run_changes_nothing_of_a_live_query() -> None:
    runs = [f"run {number}" for number in range(20)]
    past = [
        written
        for number, run in enumerate(runs)
        for written in (
            started(run_id=run, observed_at=200_000 * number),
            at(number, run_id=run, batch_id=number, observed_at=200_000 * number + 90_000),
        )
    ]
    tracker = tracked(*past)
    last = at(19, run_id=runs[-1], batch_id=19, observed_at=5_000_000)
    tracker.observe(last, offset=100)
    before = known(tracker)
    again = States()
    again.adopt(lag_event(run_id=runs[-1], observed_at=5_000_000, observation_offset=100))
    for offset, written in enumerate(past[:-2], start=101):
        assert not tracker.observe(written, offset=offset, now_ms=5_000_000)
        assert not again.observe(written, offset=offset, now_ms=5_000_000)
    assert replace(known(tracker), past_runs=before.past_runs) == before


def test_one_message_of_another_run_holds_a_query_until_the_next_of_its_own() -> None:
    tracker = tracked(at(9, observed_at=1_000))
    tracker.observe(at(99, run_id=OTHER_RUN, batch_id=10**15, observed_at=6_000), offset=1)
    assert known(tracker).run_id == OTHER_RUN
    assert tracker.observe(at(10, observed_at=11_000), offset=2)
    assert (known(tracker).run_id, known(tracker).other_run_id) == (RUN_ID, OTHER_RUN)
    assert processed(tracker) == [{"orders": {0: 10}}]
    # A run that goes on is no forgery.
    assert tracker.observe(at(99, run_id=OTHER_RUN, observed_at=16_000), offset=3)
    assert (known(tracker).run_id, known(tracker).other_run_id) == (RUN_ID, OTHER_RUN)


def test_a_checkpoint_that_moves_long_after_a_forged_batch_is_the_position() -> None:
    forged = at(99, batch_id=10**15, observed_at=1_000)
    tracker = tracked(forged)
    read = at(10, run_id=None, origin="checkpoint", batch_id=43, processed_at=32_000)
    assert tracker.observe(read)
    assert (known(tracker).run_id, known(tracker).batch_id) == (None, 43)


def test_two_runs_are_over_when_one_of_them_is_terminated(tracker: States) -> None:
    tracker.observe(at(12, observed_at=4_000), offset=3)
    assert tracker.observe(at(12, observed_at=5_000, cause="terminated", exception="x"), offset=4)
    assert known(tracker).other_run_id is None
    assert not known(tracker).ended
    assert known(tracker).exception is None
    assert processed(tracker) == [{"orders": {0: 20}}]


@pytest.mark.parametrize("first_ms", [4_000, 3_600_000], ids=["in step", "an hour ahead"])
def test_two_runs_are_over_when_one_is_silent_for_a_minute(tracker: States, first_ms: int) -> None:
    tracker.observe(at(12, observed_at=first_ms), offset=3, now_ms=4_000)
    assert (known(tracker).run_id, known(tracker).other_run_id) == (OTHER_RUN, RUN_ID)
    tracker.observe(at(21, run_id=OTHER_RUN, observed_at=10_000), offset=4)
    tracker.observe(at(13, observed_at=first_ms + 6_000), offset=5, now_ms=10_000)
    tracker.observe(at(21, run_id=OTHER_RUN, observed_at=69_999), offset=6)
    assert known(tracker).other_run_id == RUN_ID
    tracker.observe(at(21, run_id=OTHER_RUN, observed_at=70_000), offset=7)
    assert known(tracker).other_run_id is None


def test_what_an_earlier_run_wrote_is_late_also_where_another_instance_knew_that_run() -> None:
    tracker = States()
    event = lag_event(run_id=OTHER_RUN, batch_id=41, observed_at=3_000, observation_offset=3)
    tracker.adopt(event)
    assert not tracker.observe(at(12, batch_id=30, observed_at=2_000), offset=4)
    assert (known(tracker).run_id, known(tracker).other_run_id) == (OTHER_RUN, None)


def test_when_the_newer_of_two_runs_ends_the_older_one_is_the_query(tracker: States) -> None:
    tracker.observe(at(12, observed_at=4_000), offset=3)
    failed = at(20, run_id=OTHER_RUN, observed_at=5_000, cause="terminated", exception="x")
    tracker.observe(failed, offset=4)
    assert (known(tracker).ended, known(tracker).exception) == (True, "x")
    tracker.observe(at(13, observed_at=4_500), offset=5)
    assert known(tracker).ended
    tracker.observe(at(14, observed_at=6_000), offset=6)
    assert (known(tracker).run_id, known(tracker).ended) == (RUN_ID, False)
    assert (known(tracker).exception, known(tracker).other_run_id) == (None, None)
    assert processed(tracker) == [{"orders": {0: 14}}]


def test_when_the_newer_of_two_runs_is_silent_the_older_one_is_the_query(tracker: States) -> None:
    for second in range(4, 64, 10):
        tracker.observe(at(10 + second, observed_at=second * 1_000), offset=second)
    assert (known(tracker).run_id, known(tracker).other_run_id) == (OTHER_RUN, RUN_ID)
    tracker.observe(at(99, observed_at=64_001), offset=99)
    assert (known(tracker).run_id, known(tracker).other_run_id) == (RUN_ID, None)
    assert processed(tracker) == [{"orders": {0: 99}}]
    # And it was not dead.
    tracker.observe(at(30, run_id=OTHER_RUN, observed_at=65_000), offset=100)
    assert known(tracker).other_run_id == OTHER_RUN


def test_two_runs_are_remembered_by_another_instance() -> None:
    tracker = States()
    event = lag_event(run_id=OTHER_RUN, other_run_id=RUN_ID, observed_at=3_000)
    tracker.adopt(event)
    assert known(tracker).other_run_id == RUN_ID
    tracker.observe(at(21, run_id=OTHER_RUN, observed_at=10_000), offset=4)
    assert known(tracker).other_run_id == RUN_ID
    tracker.observe(at(12, observed_at=11_000), offset=5)
    assert known(tracker).run_id == OTHER_RUN
    tracker.observe(at(12, observed_at=12_000, cause="terminated"), offset=6)
    assert known(tracker).other_run_id is None


def test_a_third_run_ends_the_quarrel_of_two(tracker: States) -> None:
    tracker.observe(at(12, observed_at=4_000), offset=3)
    tracker.observe(started(run_id=THIRD_RUN, observed_at=5_000), offset=4)
    assert (known(tracker).run_id, known(tracker).other_run_id) == (THIRD_RUN, None)
    assert list(known(tracker).past_runs) == [OTHER_RUN, RUN_ID]
    tracker.observe(at(12, run_id=THIRD_RUN, observed_at=5_500), offset=5)
    tracker.observe(at(12, observed_at=6_000), offset=6)
    assert known(tracker).other_run_id == RUN_ID


@pytest.mark.parametrize(
    "query",
    [
        state(
            source({"orders": {0: 5, 1: 6}, "returns": {0: 1}}, topics=["orders", "returns"]),
            source({"fx": {0: 2}}, source=1, isolation_level="read_committed", topics=["fx"]),
            batch_id=3,
            processed_at=900,
        ),
        state(
            source(
                {"orders": {0: 5}},
                planned={"orders": {0: 8}},
                topics=["orders"],
                assigned={"orders": [0, 2]},
                cluster="east",
            ),
            source({"fx": {1: 2}}, source=3, topics=["fx"], cluster=None),
            observation_offset=77,
            checkpoint_location="file:/checkpoints/orders",
        ),
        state(source(None, topics=["orders", "returns"])),
        state(source({}, topics=["orders"])),
        state(
            source({"orders": {0: 5}}, topics=["orders", "returns"]), ended=True, exception="boom"
        ),
        state(
            source({"orders": {0: 5}}, topics=["orders"]),
            past_runs={OTHER_RUN: PastRun(0, moment().now_ms)},
            other_run_id=OTHER_RUN,
        ),
        state(
            source({"orders": {0: 5}}, planned={"orders": {0: 8}}, topics=["orders"]),
            run_id=None,
            origin="checkpoint",
            batch_id=4,
            planned_batch_id=5,
            checkpoint_batch_id=4,
            driver_written_at_ms=0,
        ),
        state(
            source({"orders": {0: 5}}, topics=["orders"], assigned={"orders": [0]}),
            run_id=None,
            query_id="group:default:billing",
            origin="group",
            driver_written_at_ms=0,
        ),
    ],
    ids=[
        *("sources", "assigned", "no position", "no partition", "failed", "two runs"),
        *("checkpoint", "group"),
    ],
)
def test_a_state_survives_its_way_through_an_event(query: QueryState) -> None:
    query = replace(
        query, run_written_since_ms=query.observed_at, run_received_at_ms=moment().now_ms
    )
    offsets = offsets_at({0: 70, 1: 70, 2: 70}, {0: 0, 1: 0, 2: 0})
    offsets = offsets_at({0: 9}, {0: 0}, topic="returns", topic_id="id-r", beside=offsets)
    offsets = offsets_at({0: 70, 2: 9}, {0: 0}, cluster="east", beside=offsets)
    assert restored(evaluated(query, offsets)) == query


def test_a_state_survives_also_where_nothing_can_be_measured() -> None:
    query = state(
        source({"orders": {0: 5, 1: 6}}, topics=["orders", "returns"]),
        run_written_since_ms=1_000,
        run_received_at_ms=moment().now_ms,
    )
    assert restored(evaluated(query, {})) == query


def observations(dice: random.Random) -> Iterator[tuple[Observation, int | None]]:
    """What a topic may hold of one query, told in any order, by clocks that are wrong."""
    for number in range(dice.randint(1, 40)):
        cause = dice.choice(["started", "progress", "progress", "idle", "refresh", "terminated"])
        make = started if cause == "started" else observation
        fields: dict[str, object] = {
            "cause": cause,
            "run_id": dice.choice([RUN_ID, OTHER_RUN, THIRD_RUN]),
            "observed_at": dice.choice([1_000, 60_000]) * dice.randint(1, 9),
            "batch_id": dice.choice([None, number, dice.randint(0, 40)]),
        }
        if cause != "started":
            fields["sources"] = [
                dice.choice(
                    [SourcePosition(source=0), position({"orders": {0: dice.randint(0, 99)}})]
                )
            ]
        yield make(**fields), dice.choice([None, number, number, dice.randint(0, 40)])


def test_over_any_sequence_the_time_of_a_query_only_rises_and_its_position_stays() -> None:
    dice = random.Random(5)
    for _ in range(500):
        tracker = States()
        for received, offset in observations(dice):
            before = tracker.queries.get(QUERY_ID)
            taken = tracker.observe(received, offset=offset)
            after = known(tracker)
            if before is None:
                continue
            assert taken or after.sources is before.sources
            assert after.has_position or not before.has_position
            if after.sources != before.sources or after.run_id != before.run_id:
                assert after.observed_at > before.observed_at
            assert after.observed_at >= before.observed_at
            assert after.run_id not in after.past_runs
            assert after.other_run_id is None or after.other_run_id in after.past_runs
            assert len(set(after.past_runs)) == len(after.past_runs) <= 4

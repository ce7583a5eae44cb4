"""The record of each tracked query: its limits, deliveries, failures and silence."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from sparklag_schemas import LagEvent, Settings
from sparklag_schemas.errors import OverLimit
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.settings import LimitSettings
from sparklag_service.counters import Counters
from sparklag_service.enrichment.cluster_offsets import Topic, TopicOffsets, measured_partitions
from sparklag_service.instance_state import near_limits
from sparklag_service.intakes import Delivery, delivery_queue
from sparklag_service.tracking import tracked_queries
from sparklag_service.tracking.query_state import QueryState
from sparklag_service.tracking.stage import observed_partitions
from sparklag_service.tracking.tracked_queries import Liveness, TrackedQueries, TrackedQuery
from tests.messages import QUERY_ID, lag_event, observation
from tests.service.asking import query
from tests.service.states import state

LIMIT_S = 30.0


class Table(TrackedQueries):
    """Tracked queries, deliveries taken from their queue, and which of these are done."""

    def __init__(self, queries: int = 3, watched_partitions: int = 10) -> None:
        self.done: list[str] = []
        self.counters = Counters()
        self.queue: NewestQueue[Delivery] = delivery_queue(100, self.counters)
        limits = LimitSettings(queries=queries, watched_partitions=watched_partitions)
        super().__init__(Settings(limits=limits).resolved("home:9092"), self.queue, self.counters)

    def let(self, query_id: str, partitions: int) -> None:
        self.track(state(query_id=query_id), partitions)

    def has(self, query_id: str) -> TrackedQuery:
        record = self.record(query_id)
        assert record is not None
        return record

    def taken(self, name: str, *, by_driver: bool = True) -> Delivery:
        observed = observation(observation_id=name, run_id="run" if by_driver else None)
        self.queue.put_nowait(Delivery(observed, lambda: self.done.append(name)))
        return self.queue.get_nowait()

    def deliver(self, name: str, newest: QueryState, *, by_driver: bool = True) -> None:
        self.add_pending(self.track(newest), self.taken(name, by_driver=by_driver))

    def covered(self, of: QueryState) -> str | None:
        """The name of the delivery that an event of this state covers."""
        delivery = self.has(QUERY_ID).covered(of)
        return None if delivery is None else delivery.observation.observation_id

    def take(self, of: QueryState) -> Delivery:
        delivery = self.has(QUERY_ID).take_covered(of)
        assert delivery is not None
        return delivery


@pytest.fixture
async def table() -> Table:
    return Table()


FIRST, SECOND = state(batch_id=1), state(batch_id=2)


async def test_a_newer_delivery_of_a_driver_settles_the_one_before(table: Table) -> None:
    table.deliver("a", FIRST)
    table.deliver("b", SECOND)
    assert table.done == ["a"]
    assert table.counters.superseded == 1
    assert table.covered(FIRST) is None
    assert table.covered(SECOND) == "b"


async def test_a_watchers_delivery_settles_nothing_of_a_driver(table: Table) -> None:
    table.deliver("driver", FIRST)
    table.deliver("look", SECOND, by_driver=False)
    assert table.done == ["look"]
    # The driver's: it says why.
    assert table.covered(FIRST) is None
    assert table.covered(SECOND) == "driver"
    table.deliver("driver again", SECOND)
    assert table.done == ["look", "driver"]
    assert table.covered(SECOND) == "driver again"


async def test_a_watchers_delivery_is_pending_where_no_driver_reports(table: Table) -> None:
    table.deliver("look", FIRST, by_driver=False)
    table.deliver("look again", SECOND, by_driver=False)
    assert table.done == ["look"]
    assert table.covered(SECOND) == "look again"


async def test_a_delivery_not_published_is_pending_for_the_newest_state(table: Table) -> None:
    table.deliver("driver", FIRST)
    failed = table.take(FIRST)
    assert table.unpublished == 0
    table.put_back(failed)
    assert table.covered(FIRST) == "driver"
    table.take(FIRST)
    table.deliver("look", SECOND, by_driver=False)
    table.put_back(failed)
    assert table.covered(SECOND) == "driver"
    assert table.done == ["look"]
    table.take(SECOND)
    table.deliver("driver again", SECOND)
    table.put_back(failed)
    assert table.covered(SECOND) == "driver again"
    assert table.done == ["look", "driver"]
    assert table.unpublished == 1


async def test_a_delivery_that_is_settled_or_dropped_is_done_with_the_queue(table: Table) -> None:
    table.settle(table.taken("settled"))
    table.drop(table.taken("dropped"))
    table.put_back(table.taken("of no tracked query"))
    table.deliver("published by another", FIRST)
    table.settle_pending(QUERY_ID)
    table.deliver("released", FIRST)
    assert table.queue.unfinished == 1
    table.release(QUERY_ID)
    assert table.done == ["settled", "published by another"]
    assert table.queue.unfinished == table.unpublished == 0


async def test_a_query_beyond_the_limit_is_refused_until_another_goes() -> None:
    full = Table(queries=2)
    full.let("a", 1)
    full.let("b", 1)
    with pytest.raises(OverLimit, match=r"already 2 queries on this instance .limits\.queries."):
        full.let("c", 1)
    assert full.is_full
    full.let("a", 2)
    full.release("b")
    full.let("c", 1)
    assert full.record("b") is None


async def test_a_query_that_outgrows_the_limit_is_refused_and_keeps_its_state(table: Table) -> None:
    table.let("a", 6)
    table.let("b", 4)
    with pytest.raises(OverLimit, match=r"its 7 partitions exceed the 10 .*watched_partitions"):
        table.let("a", 7)
    assert table.has("a").partitions == 6
    table.admit(table.has("b"), 3)
    table.let("a", 7)
    assert table.partitions == 10
    table.let("a", 2)
    assert table.has("a").partitions == 7
    table.release("a")
    table.release("never seen")
    assert table.partitions == 3


async def test_a_query_without_partitions_is_admitted_where_there_is_no_room(table: Table) -> None:
    table.let("a", 10)
    table.let("b", 0)
    assert table.shares == {"queries": (2, 3), "watched_partitions": (10, 10)}


async def test_an_adopted_query_keeps_its_first_state_until_it_is_released(table: Table) -> None:
    table.adopt(lag_event(observed_at=1_000), 0.0)
    table.adopt(lag_event(observed_at=2_000), 0.0)
    assert table[QUERY_ID].observed_at == 1_000
    assert table.partitions == 1
    table.release(QUERY_ID)
    table.release(QUERY_ID)
    assert not table


async def test_a_query_expires_by_its_last_message(table: Table) -> None:
    table.track(state(observed_at=1_000))
    assert list(table.expired(1_000)) == []
    assert list(table.expired(1_001)) == [QUERY_ID]


def test_a_limit_that_is_nearly_reached_is_named() -> None:
    assert near_limits({"queries": (79, 100)}) is None
    assert near_limits({"queries": (4_000, 5_000), "view_mb": (1, 64)}) == (
        "4,000 of 5,000 (limits.queries)"
    )


def test_of_an_observation_positions_plans_and_topics_count() -> None:
    wide = replace(
        observation().sources[0],
        topics=["a", "b"],
        processed={"a": {0: 1}},
        planned={"a": {0: 1, 1: 1}, "b": {0: 1}},
        assigned=None,
    )
    assert observed_partitions(replace(observation(), sources=[wide])) == 5


def test_of_a_query_every_partition_that_its_topics_have_counts() -> None:
    measured = query({"orders": [0, 1], "gone": [0]})
    offsets = {"default": {"orders": TopicOffsets(Topic("id", tuple(range(7))))}}
    assert measured_partitions(measured, offsets) == 8
    assert measured_partitions(measured, {}) == 3


async def test_failures_stay_until_recovery(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    failing = lag_event(query_id="q\n1")
    table.let("q\n1", 1)
    with caplog.at_level(logging.ERROR, logger=tracked_queries.__name__):
        for _ in range(3):
            table.failed(failing, "evaluation", ValueError("empty"))
        table.failed(failing, "publishing", ValueError("empty"))
    assert +table.failures == {"evaluation": 3, "publishing": 1}
    traced = [record for record in caplog.records if record.name == tracked_queries.__name__]
    assert [record.getMessage() for record in traced] == [
        r"evaluation of query q\n1 failed: ValueError: empty",
        r"publishing of query q\n1 failed: ValueError: empty",
    ]
    assert all(record.exc_info for record in traced)
    record = table.has("q\n1")
    assert "evaluation (ValueError: empty)" in str(record.failure)
    table.recovered("q\n1", "evaluation")
    table.recovered("another", "evaluation")
    assert "publishing" in (record.failure or "")
    table.recovered("q\n1", "publishing")
    assert record.failure is None


async def test_the_failures_of_queries_that_are_not_tracked_are_bounded(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracked_queries, "_TRACES", 10)
    for number in range(30):
        table.failed_to_track(lag_event(query_id=f"q{number}"), ValueError("bad"))
    assert len(table) == 3
    assert table.failures["tracking"] == 30
    before = len(caplog.records)
    table.failed(lag_event(query_id="q29"), "tracking", ValueError("bad"))
    assert len(caplog.records) == before


def liveness(*, caught_up_s: int) -> tuple[Liveness, Callable[[float | None], bool]]:
    """That of a query whose message was received at 0, and every message until then."""
    clock = Liveness(LIMIT_S, 1.0)
    listen(clock, 0, caught_up_s)
    return clock, clock.is_over


def listen(clock: Liveness, begin_s: int, end_s: int) -> None:
    for second in range(begin_s, end_s + 1):
        clock.caught_up(float(second))


def test_a_query_that_reports_nothing_for_longer_than_the_limit_is_silent() -> None:
    clock, is_over = liveness(caught_up_s=30)
    assert not is_over(0.0)
    listen(clock, 31, 31)
    assert is_over(0.0)


def test_no_query_is_silent_while_kafka_is_away_nor_just_after() -> None:
    clock, is_over = liveness(caught_up_s=10)
    # Nothing is received from 10 to 100: not the query's fault.
    listen(clock, 100, 130)
    assert not is_over(0.0)
    listen(clock, 131, 131)
    assert is_over(0.0)


def test_a_query_is_silent_also_where_the_service_refreshes_seldom() -> None:
    clock = Liveness(LIMIT_S, 15.0)
    for second in (0.0, 15.0, 31.0):
        clock.caught_up(second)
    assert clock.is_over(0.0)


def test_before_any_message_was_received_no_query_is_silent() -> None:
    assert not Liveness(LIMIT_S, 1.0).is_over(0.0)
    _, is_over = liveness(caught_up_s=100)
    assert not is_over(None)


@pytest.mark.parametrize("run_id", ["run", None])
async def test_a_query_that_was_silent_before_kafka_went_away_is_so_until_its_next_message(
    table: Table, run_id: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def caught_up(begin_s: int, end_s: int) -> None:
        for second in range(begin_s, end_s + 1):
            monkeypatch.setattr("time.monotonic", lambda s=second: float(s))
            table.caught_up(float(second) if run_id is not None else None)

    record = table.track(state(run_id=run_id))
    record.received(0.0)
    caught_up(0, 100)
    assert table.is_silent(record)
    caught_up(200, 201)
    assert table.is_silent(record)
    record.received(201.0)
    assert not table.is_silent(record)


@pytest.mark.parametrize(
    ("event", "is_silent"),
    [
        (lag_event(), False),
        (lag_event(status="STOP"), True),
        (lag_event(measured_by="embedded"), True),
    ],
)
async def test_an_adopted_query_has_its_time_unless_it_was_silent_already(
    table: Table, event: LagEvent, is_silent: bool
) -> None:
    table.caught_up(100.0)
    table.adopt(event, 100.0)
    assert table.is_silent(table.has(QUERY_ID)) is is_silent
    for second in range(101, 132):
        table.caught_up(float(second))
    assert table.is_silent(table.has(QUERY_ID))

"""Spark's events as observations: each complete, none that takes a position back."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from msgspec.structs import replace

from sparklag_listener.events.event_queue import (
    ActiveQuery,
    Idled,
    Progressed,
    QueryEvent,
    Started,
    Terminated,
)
from sparklag_listener.events.kafka_source import QueryDescription
from sparklag_listener.events.observer import Observer
from sparklag_schemas import (
    MalformedMessage,
    Observation,
    SourcePosition,
    decode_observation,
    encode,
)
from tests import samples

QUERY, RUN, NEXT_RUN = "query-1", "run-1", "run-2"


def kafka_source(
    *topics: str, index: int = 0, pattern: str | None = None, **fields: Any
) -> SourcePosition:
    described = {
        "topics": list(topics) or None,
        "bootstrap_servers": "broker:9092",
        "isolation_level": "read_uncommitted",
        **fields,
    }
    return SourcePosition(source=index, topic_pattern=pattern, **described)


def progress(
    batch_id: int,
    *ends: dict[str, dict[int, int]] | None,
    run_id: str = RUN,
    at_ms: int = 50,
    name: str | None = "orders",
    timestamp: str = "2026-11-21T08:01:22.600Z",
) -> Progressed:
    """A progress of Kafka sources at `ends`; None for one that had nothing in this batch."""
    sources = [{"description": "KafkaV2[...]", "endOffset": end} for end in ends]
    document = {
        "id": QUERY,
        "runId": run_id,
        "name": name,
        "timestamp": timestamp,
        "batchId": batch_id,
        "numInputRows": 3,
        "durationMs": {"triggerExecution": 400},
        "sources": sources,
    }
    return Progressed(json.dumps(document), at_ms)


def idle_progress(batch_id: int, *ends: dict[str, dict[int, int]] | None) -> Progressed:
    document = json.loads(progress(batch_id, *ends, timestamp="2026-11-21T08:01:32.600Z").text)
    document |= {"numInputRows": 0, "durationMs": {"latestOffset": 3, "triggerExecution": 4}}
    return Progressed(json.dumps(document), 55)


def started(run_id: str = RUN, at_ms: int = 10) -> Started:
    return Started(QUERY, run_id, "orders", at_ms)


def idled(run_id: str = RUN, at_ms: int = 60) -> Idled:
    return Idled(QUERY, run_id, at_ms)


def refreshed(run_id: str = RUN, at_ms: int = 65) -> ActiveQuery:
    return ActiveQuery(QUERY, run_id, at_ms)


def terminated(run_id: str = RUN, exception: str | None = None, at_ms: int = 70) -> Terminated:
    return Terminated(QUERY, run_id, exception, at_ms)


def observer(*sources: SourcePosition, checkpoint: str | None = "file:/checkpoint") -> Observer:
    made = Observer("default")
    made.describe(QUERY, RUN, QueryDescription(sources, checkpoint))
    return made


@pytest.fixture
def watching() -> Observer:
    return observer(kafka_source("orders"))


def received(observer: Observer, event: QueryEvent) -> Observation:
    observation = observer.observe(event)
    assert observation is not None
    # Whatever is made can be sent: it keeps its own contract.
    assert decode_observation(encode(observation)) == observation
    return observation


def processed(observation: Observation) -> list[Any]:
    return [source.processed for source in observation.sources]


def test_a_started_query_reports_what_it_reads_and_that_its_position_is_not_known() -> None:
    source = kafka_source("orders", isolation_level="read_committed")
    observation = received(observer(source), started())
    assert (observation.cause, observation.observed_at) == ("started", 10)
    assert (observation.query_id, observation.run_id, observation.query) == (QUERY, RUN, "orders")
    assert (observation.batch_id, observation.processed_at) == (None, None)
    assert observation.checkpoint_location == "file:/checkpoint"
    assert source.processed is None
    assert observation.sources == [source]


def test_a_progress_reports_the_position_and_its_batch() -> None:
    observation = received(observer(kafka_source("orders")), progress(7, {"orders": {0: 5, 1: 8}}))
    assert (observation.cause, observation.batch_id) == ("progress", 7)
    assert processed(observation) == [{"orders": {0: 5, 1: 8}}]
    assert observation.batch is not None
    assert observation.batch.rows == 3
    assert observation.processed_at == observation.batch.started_at + 400


@pytest.mark.parametrize("activity", [None, "running", "waiting"])
def test_only_a_refresh_reports_the_activity(watching: Observer, activity: Any) -> None:
    assert received(watching, started()).activity is None
    assert received(watching, ActiveQuery(QUERY, RUN, 20, activity=activity)).activity == activity
    assert received(watching, progress(7, {"orders": {0: 5}})).activity is None


@pytest.mark.parametrize("event", [idled(), refreshed(), terminated()])
def test_what_is_no_progress_repeats_the_position(watching: Observer, event: QueryEvent) -> None:
    before = received(watching, progress(7, {"orders": {0: 5}}))
    observation = received(watching, event)
    assert observation.sources == before.sources
    assert observation.batch_id == 7
    assert observation.processed_at == before.processed_at
    assert observation.checkpoint_location == before.checkpoint_location
    assert observation.query == "orders"
    assert observation.batch is None, "the batch is reported once"
    assert observation.observation_id != before.observation_id


def test_a_progress_without_a_batch_is_idle_at_the_same_position(watching: Observer) -> None:
    # Spark gives it the number of the batch to come. Before 3.5 it is an event.
    before = received(watching, progress(7, {"orders": {0: 5}}))
    observation = received(watching, idle_progress(8, {"orders": {0: 5}}))
    assert (observation.cause, observation.batch_id, observation.batch) == ("idle", 7, None)
    assert observation.processed_at == before.processed_at
    assert processed(observation) == [{"orders": {0: 5}}]
    assert watching.batch_of(QUERY, RUN) == 7
    assert watching.observe(idle_progress(7, {"orders": {0: 4}})) is None, "it is older"
    assert received(watching, progress(8, {"orders": {0: 6}})).batch_id == 8


def test_a_restart_without_data_has_its_position(watching: Observer) -> None:
    received(watching, started())
    observation = received(watching, idle_progress(8, {"orders": {0: 5}}))
    assert processed(observation) == [{"orders": {0: 5}}]
    assert (observation.batch_id, observation.processed_at) == (7, None)
    first = received(observer(kafka_source("orders")), idle_progress(0, None))
    assert (first.batch_id, processed(first)) == (None, [None])


@pytest.mark.parametrize("seed", range(30))
def test_in_whatever_order_progress_comes_the_position_never_goes_back(seed: int) -> None:
    chance = random.Random(seed)
    batches = [chance.randrange(20) for _ in range(40)]
    watching = observer(kafka_source("orders"))
    newest = -1
    for batch in batches:
        observation = watching.observe(progress(batch, {"orders": {0: batch * 10}}))
        assert (observation is None) == (batch <= newest)
        newest = max(newest, batch)
        assert processed(received(watching, idled())) == [{"orders": {0: newest * 10}}]


def test_a_source_that_a_batch_skips_is_there_and_keeps_its_position() -> None:
    watching = observer(kafka_source("a"), kafka_source("b", index=1))
    first = received(watching, progress(0, None, {"b": {0: 9}}))
    assert processed(first) == [None, {"b": {0: 9}}]
    assert first.sources[0].topics == ["a"]
    received(watching, progress(1, {"a": {0: 5}}, {"b": {0: 9}}))
    later = received(watching, progress(2, None, {"b": {0: 12}}))
    assert processed(later) == [{"a": {0: 5}}, {"b": {0: 12}}]


A, B = kafka_source("a"), kafka_source("b", index=1, bootstrap_servers="elsewhere:9092")
PATTERN = kafka_source(index=1, pattern=r"orders-\d+")
JAVA_PATTERN = kafka_source(pattern=r"\p{Alpha}++")


@pytest.mark.parametrize(
    ("sources", "ends", "matched"),
    [
        pytest.param([A, B], [{"b": {0: 9}}, {"a": {0: 5}}], [B, A], id="numbered otherwise"),
        pytest.param([A, A], [{"a": {0: 9}}, {"a": {0: 5}}], [A, A], id="one topic, two sources"),
        pytest.param([A], [{"a": {0: 9}}, {"a": {0: 5}}], [A, A], id="one source, read twice"),
        pytest.param(
            [A, PATTERN], [{"orders-1": {0: 1}, "orders-22": {0: 2}}], [PATTERN], id="regex"
        ),
        pytest.param([JAVA_PATTERN], [{"orders": {0: 1}}], [JAVA_PATTERN], id="valid in Java only"),
        pytest.param([A], [{"renamed": {0: 1}}], [A], id="the only source"),
        pytest.param([], [{"orders": {0: 5}}], [SourcePosition(source=0)], id="no description"),
    ],
)
def test_sources_are_matched_by_their_topics(
    sources: list[SourcePosition], ends: list[Any], matched: list[SourcePosition]
) -> None:
    observation = received(observer(*sources), progress(1, *ends))
    assert observation.sources == [
        replace(source, source=index, processed=end)
        for index, (source, end) in enumerate(zip(matched, ends, strict=True))
    ]


def test_a_run_too_short_to_describe_has_the_description_of_the_last(watching: Observer) -> None:
    received(watching, terminated())
    watching.describe(QUERY, NEXT_RUN, QueryDescription())
    observation = received(watching, started(NEXT_RUN))
    assert [source.topics for source in observation.sources] == [["orders"]]
    assert processed(observation) == [None]
    assert received(watching, terminated(NEXT_RUN)).checkpoint_location == "file:/checkpoint"


def test_a_restart_after_its_end_begins_without_a_position(watching: Observer) -> None:
    received(watching, progress(7, {"orders": {0: 5}}))
    received(watching, terminated())
    watching.describe(QUERY, NEXT_RUN, QueryDescription((kafka_source("orders"),)))
    observation = received(watching, started(NEXT_RUN))
    assert observation.run_id == NEXT_RUN
    assert processed(observation) == [None]
    assert observation.batch_id is None


def restarted() -> Observer:
    """An observer whose query was started again before the end of its earlier run."""
    watching = observer(kafka_source("orders"))
    received(watching, progress(7, {"orders": {0: 5}}))
    watching.describe(QUERY, NEXT_RUN, QueryDescription((kafka_source("orders"),)))
    observation = received(watching, started(NEXT_RUN))
    assert processed(observation) == [{"orders": {0: 5}}]
    return watching


def test_the_end_of_an_earlier_run_is_not_the_end_of_the_query() -> None:
    watching = restarted()
    assert watching.observe(terminated(RUN, "stopped")) is None
    observation = received(watching, idled(NEXT_RUN))
    assert observation.run_id == NEXT_RUN
    assert observation.sources[0].topics == ["orders"], "it is still described"
    assert processed(observation) == [{"orders": {0: 5}}]


def test_the_last_batch_of_an_earlier_run_still_counts_as_position() -> None:
    observation = received(restarted(), progress(8, {"orders": {0: 6}}))
    assert observation.run_id == NEXT_RUN
    assert processed(observation) == [{"orders": {0: 6}}]


def test_once_the_new_run_has_a_batch_the_earlier_one_has_nothing_to_add() -> None:
    watching = restarted()
    received(watching, progress(8, {"orders": {0: 6}}, run_id=NEXT_RUN))
    assert watching.observe(progress(9, {"orders": {0: 7}}, run_id=RUN)) is None


def test_a_new_run_may_begin_with_an_earlier_batch() -> None:
    # Somebody put the query back by taking commits away.
    observation = received(restarted(), progress(3, {"orders": {0: 2}}, run_id=NEXT_RUN))
    assert processed(observation) == [{"orders": {0: 2}}]


@pytest.mark.parametrize("event", [started(), idled(), terminated(), progress(9, {"a": {0: 1}})])
def test_nothing_that_comes_after_its_end_brings_a_run_back(event: QueryEvent) -> None:
    watching = observer(kafka_source("a"))
    received(watching, terminated())
    assert watching.has_run(QUERY, RUN), "there is nothing more to learn of it"
    assert watching.observe(event) is None


def test_a_driver_of_many_short_queries_does_not_fill_its_memory() -> None:
    watching = Observer("default")
    for number in range(5_000):
        query_id, run_id = f"query-{number}", f"run-{number}"
        watching.describe(query_id, run_id, QueryDescription((kafka_source("a"),)))
        watching.observe(Started(query_id, run_id, None, 1))
        watching.observe(Terminated(query_id, run_id, None, 2))
    assert len(watching._queries) == 0
    assert len(watching._ended_runs) <= 1_000


def test_a_refresh_of_another_run_is_ignored(watching: Observer) -> None:
    assert Observer("default").observe(refreshed()) is None
    assert watching.observe(refreshed(NEXT_RUN)) is None
    observation = received(watching, refreshed())
    assert (observation.cause, observation.run_id) == ("refresh", RUN)


def test_the_runs_that_go_on_are_known_with_their_last_batch(watching: Observer) -> None:
    assert watching.runs() == {RUN: QUERY}
    assert watching.batch_of(QUERY, RUN) is None
    received(watching, progress(7, {"orders": {0: 5}}))
    assert watching.batch_of(QUERY, RUN) == 7
    received(watching, started(NEXT_RUN))
    assert watching.runs() == {NEXT_RUN: QUERY}
    assert watching.batch_of(QUERY, NEXT_RUN) is None, "that batch was an earlier run's"
    received(watching, terminated(NEXT_RUN))
    assert watching.runs() == {}


def test_observed_at_never_goes_back_though_the_clock_does(watching: Observer) -> None:
    events: list[QueryEvent] = [
        started(at_ms=1_000),
        progress(1, {"orders": {0: 5}}, at_ms=400),
        idled(at_ms=900),
        refreshed(at_ms=1_001),
        terminated(at_ms=2),
        started(NEXT_RUN, at_ms=3),
    ]
    observed_at = [received(watching, event).observed_at for event in events]
    assert observed_at == [1_000, 1_000, 1_000, 1_001, 1_001, 1_001]


def test_a_query_started_again_under_another_name_has_that_name(watching: Observer) -> None:
    received(watching, progress(7, {"orders": {0: 5}}))
    renamed = received(watching, Started(QUERY, NEXT_RUN, "orders-2", 10))
    assert (renamed.query_id, renamed.query) == (QUERY, "orders-2")
    # The earlier run's last batch comes late: the position counts, the name does not.
    late = received(watching, progress(8, {"orders": {0: 6}}))
    assert late.query == "orders-2"
    nameless = received(watching, progress(9, {"orders": {0: 7}}, run_id=NEXT_RUN, name=None))
    assert nameless.query is None


def test_assigned_partitions_are_part_of_what_a_source_reports() -> None:
    watching = observer(kafka_source("a", assigned={"a": [0, 2]}), kafka_source("b", index=1))
    observation = received(watching, started())
    assert [source.assigned for source in observation.sources] == [{"a": [0, 2]}, None]
    observation = received(watching, progress(1, {"a": {0: 1, 2: 1}}, {"b": {0: 1}}))
    assert [source.assigned for source in observation.sources] == [{"a": [0, 2]}, None]


def test_a_progress_that_cannot_be_read_is_an_error_and_changes_nothing(watching: Observer) -> None:
    received(watching, progress(7, {"orders": {0: 5}}))
    with pytest.raises(MalformedMessage):
        watching.observe(Progressed("{", 1))
    assert processed(received(watching, idled())) == [{"orders": {0: 5}}]


@pytest.mark.parametrize("name", samples.PROGRESS)
def test_every_sample_makes_an_observation_that_can_be_sent(name: str) -> None:
    document = samples.progress_document(name)
    observation = Observer("default").observe(Progressed(samples.progress_text(name), 1))
    kafka = [s for s in document["sources"] if s["description"].startswith("Kafka")]
    assert (observation is None) == (not kafka)
    if observation is not None:
        assert decode_observation(encode(observation)) == observation
        assert len(observation.sources) == len(kafka)


def test_without_a_description_a_progress_reports_what_its_sources_read() -> None:
    watching = Observer("default", "connect")
    assert watching.observe(started()) is None
    text = progress(1, {"orders": {0: 5}}, None).text
    first = received(watching, Progressed(text.replace("[...]", "[Subscribe[orders, b]]"), 50))
    assert first.origin == "connect"
    assert [source.topics for source in first.sources] == [["orders", "b"]] * 2
    assert processed(first) == [{"orders": {0: 5}}, None]
    assert [source.bootstrap_servers for source in first.sources] == [None, None]
    assert received(watching, refreshed()).sources == first.sources


def test_a_description_counts_for_more_than_what_a_progress_reports() -> None:
    watching = observer(kafka_source("orders", isolation_level="read_committed"))
    text = progress(1, {"orders": {0: 5}}).text.replace("[...]", "[Subscribe[orders]]")
    assert received(watching, Progressed(text, 50)).sources[0].isolation_level == "read_committed"


@pytest.mark.parametrize(
    ("exception", "driver_end"),
    [
        ("SparkException: Job 3 cancelled as part of cancellation of all jobs", "interrupted"),
        ("PythonException: Traceback:\nKeyboardInterrupt\n", "interrupted"),
        ("SparkException: Job 3 cancelled part of cancelled job group 7", None),
        ("ValueError: no KeyboardInterrupt here", None),
    ],
)
def test_a_batch_that_ctrl_c_cancels_has_not_failed(exception: str, driver_end: str | None) -> None:
    end = observer(kafka_source("orders")).observe(terminated(exception=exception))
    assert end is not None
    assert (end.driver_end, end.exception is None) == (driver_end, driver_end is not None)

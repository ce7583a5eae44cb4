"""The same listener on each version of Spark, with a real query that ends and goes on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sparklag_offsets.checkpoints import CheckpointStore, read_checkpoint
from sparklag_schemas import Observation
from tests import samples
from tests.lanes.conftest import UNREAD, LaneStory, Run, committed
from tests.listener.driver_process import OUR_NOISE

# The first time on a machine, a lane's Spark is downloaded.
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]
pytestmark.append(pytest.mark.feature("Spark", "listener"))


def test_the_driver_is_on_the_lanes_spark_and_ends_well(story: LaneStory) -> None:
    assert story.versions["spark"] == story.lane.spark
    assert story.exit_code == 0
    for noise in set(OUR_NOISE) - {"sparklag: "}:
        assert noise not in story.output, story.output


@pytest.mark.feature("Spark", "`SPARKLAG_AUTO`")
def test_the_session_was_observed_before_the_driver_did_it(story: LaneStory) -> None:
    assert story.versions["automatic"] == "listener"


def test_progress_is_passed_as_text(story: LaneStory) -> None:
    assert "Proxy" in story.versions["listener"]


def test_a_querys_life_arrives_whole_and_in_order(story: LaneStory) -> None:
    causes = [observation.cause for observation in story.of(story.first)]
    assert causes[0] == "started"
    assert causes[-1] == "terminated"
    assert causes.count("progress") >= 2
    assert "idle" in causes
    assert story.of(story.first)[-1].sources[0].processed == {story.topic: story.first.end}
    assert story.of(story.first)[-1].exception is None


@pytest.mark.feature("Spark", "options of a query")
def test_every_observation_has_what_the_query_reads_and_its_checkpoint(story: LaneStory) -> None:
    for observation in story.observations[story.first.query_id]:
        (source,) = observation.sources
        assert source.topics == [story.topic]
        assert source.bootstrap_servers == story.servers
        assert source.isolation_level == "read_committed"
        assert observation.query == "orders"
        polled = observation.run_id == story.polled.run_id
        assert observation.origin == ("poll" if polled else "listener")
        assert observation.checkpoint_location == f"file:{story.folder / 'orders'}"


def test_every_position_is_what_the_checkpoint_reports_of_the_same_batch(story: LaneStory) -> None:
    batches = set()
    for observation in story.observations[story.first.query_id]:
        (source,) = observation.sources
        if observation.batch_id is None:
            assert source.processed is None
            continue
        batches.add(observation.batch_id)
        (saved,) = samples.committed_offsets(story.folder / "orders", observation.batch_id)
        assert source.processed == {
            story.topic: {int(number): end for number, end in saved[story.topic].items()}
        }
    # What was sent at four times may be read in more batches.
    assert len(batches) >= 4
    # While there was no listener, only the newest was read.
    assert len(set(range(max(batches))) - batches) <= 1


def test_a_restart_without_data_remains_where_the_last_run_ended(story: LaneStory) -> None:
    received = story.of(story.restarted)
    assert story.restarted.query_id == story.first.query_id
    assert story.restarted.run_id != story.first.run_id
    assert received[0].cause == "started"
    before = [
        each for each in received[: position_of_progress(received)] if each.batch_id is not None
    ]
    assert before
    for observation in before:
        assert observation.sources[0].processed == {story.topic: story.first.end}


def position_of_progress(received: Sequence[Observation]) -> int:
    return next(number for number, each in enumerate(received) if each.cause == "progress")


def test_a_restarted_query_goes_on_after_its_last_batch(story: LaneStory) -> None:
    batches = [each for each in story.of(story.restarted) if each.cause == "progress"]
    last = story.of(story.first)[-1].batch_id
    assert last is not None
    assert batches[0].batch_id == last + 1
    reached = [each.sources[0].processed for each in batches]
    assert {story.topic: story.restarted.end} in reached


def test_a_query_that_does_nothing_is_still_reported_to_run(story: LaneStory) -> None:
    received = story.of(story.restarted)
    refreshed = [
        each for each in received[: position_of_progress(received)] if each.cause == "refresh"
    ]
    assert refreshed
    assert refreshed[-1].sources[0].processed == {story.topic: story.first.end}


def test_a_failed_query_reports_why(story: LaneStory) -> None:
    observations = story.of(story.failing)
    assert observations[-1].cause == "terminated"
    assert "this batch breaks" in (observations[-1].exception or "")


def test_what_the_listener_bus_does_not_bring_is_detected_all_the_same(story: LaneStory) -> None:
    received = story.of(story.deaf)
    assert received[-1].cause == "terminated"
    assert received[-1].sources[0].processed == {story.topic: story.deaf.end}
    assert story.stats["recovered"] >= 2


@pytest.mark.feature("Spark", "poll")
def test_a_query_that_is_only_polled_is_known_too(story: LaneStory) -> None:
    received = story.of(story.polled)
    assert received[-1].cause == "terminated"
    assert received[-1].sources[0].processed == {story.topic: story.polled.end}
    assert {"started", "progress"} <= {each.cause for each in received}


@pytest.mark.feature("Spark", "offsets of a batch in `foreachBatch`")
def test_a_batch_knows_its_query_and_its_ranges(story: LaneStory) -> None:
    (end, first), (later_end, second) = story.kept
    assert first.query_id == second.query_id
    assert first.run_id != second.run_id
    assert (first.query, first.batch_id, second.batch_id) == ("kept", 0, 1)
    (source,), (later,) = first.sources, second.sources
    assert source.began == {story.topic: dict.fromkeys(end, 0)}
    assert source.processed == later.began == {story.topic: end}
    assert later.processed == {story.topic: later_end}
    assert source.isolation_level == "read_committed"


def test_nothing_failed_and_nothing_was_dropped(story: LaneStory) -> None:
    for stats in (story.stats, story.polled_stats):
        counts = {name: stats[name] for name in ("dropped", "failed", "queued", "last_error")}
        assert counts == {"dropped": 0, "failed": 0, "queued": 0, "last_error": None}
    published = story.stats["published"] + story.polled_stats["published"]
    assert published == sum(map(len, story.observations.values()))


@pytest.mark.feature("Spark", "checkpoint")
def test_the_checkpoints_reader_finds_what_the_listener_reported(story: LaneStory) -> None:
    assert_read(story, "orders", story.polled, "v1")


@pytest.mark.feature("Spark", "checkpoint, offset log v2")
def test_the_reader_reads_the_second_format(story: LaneStory) -> None:
    assert story.second_format is not None
    assert_read(story, "orders-v2", story.second_format, "v2")


def assert_read(story: LaneStory, name: str, run: Run, version: str) -> None:
    last = story.of(run)[-1]
    written = (story.folder / name / "offsets" / str(last.batch_id)).read_text().splitlines()
    assert written[0] == version
    assert written[2].startswith("0:" if version == "v2" else "{")
    position = read_checkpoint(CheckpointStore({}, timeout_s=30), str(story.folder / name))
    assert position.query_id == run.query_id
    assert position.batch_id == last.batch_id
    assert position.planned_batch_id is None
    assert [source.processed for source in position.sources] == [{story.topic: run.end}]


@pytest.mark.feature("Spark", "restore by `starting_offsets`")
def test_a_new_query_starts_where_another_ended(story: LaneStory) -> None:
    assert story.restored == UNREAD


@pytest.mark.feature("Spark", "continuous processing")
def test_a_continuous_query_is_reported_to_run_and_its_checkpoint_is_read(story: LaneStory) -> None:
    received = story.of(story.continuous)
    assert (received[0].cause, received[-1].cause) == ("started", "terminated")
    assert {each.mode for each in received} == {"continuous"}
    assert {each.batch_id for each in received} == {None}
    assert committed(story.folder / "continuous") == {story.topic: story.continuous.end}


@pytest.mark.feature("Spark", "real-time mode")
def test_a_query_in_real_time_mode_is_observed(story: LaneStory) -> None:
    assert story.real_time is not None
    received = story.of(story.real_time)
    assert {each.mode for each in received} == {"real-time"}
    assert received[-1].sources[0].processed == {story.topic: story.real_time.end}


@pytest.mark.feature("Spark", "checkpoint")
def test_the_checkpoints_reader_finds_the_batch_that_failed(story: LaneStory) -> None:
    position = read_checkpoint(CheckpointStore({}, timeout_s=30), str(story.folder / "failing"))
    assert position.query_id == story.failing.query_id
    assert (position.batch_id, position.planned_batch_id) == (None, 0)
    (source,) = position.sources
    assert (source.processed, source.planned) == (None, {story.topic: story.failing.end})

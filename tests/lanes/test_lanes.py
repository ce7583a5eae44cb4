"""The same listener on each version of Spark, with a real query that ends and goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from sparklag_offsets.checkpoints import CheckpointStore, read_checkpoint
from sparklag_schemas import Observation
from tests import samples
from tests.lanes.conftest import LaneStory
from tests.listener.driver_process import OUR_NOISE

# The first time on a machine, a lane's Spark is downloaded.
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]


def test_the_driver_is_on_the_lanes_spark_and_ends_well(story: LaneStory) -> None:
    assert story.versions["spark"] == story.lane.spark
    assert story.exit_code == 0
    for noise in set(OUR_NOISE) - {"sparklag: "}:
        assert noise not in story.output, story.output


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


def test_a_query_that_is_only_polled_is_known_too(story: LaneStory) -> None:
    received = story.of(story.polled)
    assert received[-1].cause == "terminated"
    assert received[-1].sources[0].processed == {story.topic: story.polled.end}
    assert {"started", "progress"} <= {each.cause for each in received}


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


def test_the_offset_log_is_of_the_requested_format(story: LaneStory) -> None:
    for name, run, wanted in (
        ("orders", story.first, "v1"),
        ("orders-v2", story.second_format, "v2"),
    ):
        if run is None:
            assert not story.lane.offsets_v2
            continue
        version, metadata, offsets = (
            (story.folder / name / "offsets" / "0").read_text().splitlines()
        )
        assert version == wanted
        assert "batchTimestampMs" in json.loads(metadata)
        if wanted == "v2":
            source, _, offsets = offsets.partition(":")
            assert source == "0"
            last = story.of(run)[-1]
            assert last.sources[0].processed == {
                story.topic: {int(n): end for n, end in json.loads(offsets)[story.topic].items()}
            }


def test_the_checkpoints_reader_finds_what_the_listener_reported(story: LaneStory) -> None:
    store = CheckpointStore({}, timeout_s=30)
    for name, run in (("orders", story.polled), ("orders-v2", story.second_format)):
        if run is None:
            continue
        last = story.of(run)[-1]
        position = read_checkpoint(store, str(story.folder / name))
        assert position.query_id == run.query_id
        assert position.batch_id == last.batch_id
        assert position.planned_batch_id is None
        assert [source.processed for source in position.sources] == [{story.topic: run.end}]


def test_the_checkpoints_reader_finds_the_batch_that_failed(story: LaneStory) -> None:
    position = read_checkpoint(CheckpointStore({}, timeout_s=30), str(story.folder / "failing"))
    assert position.query_id == story.failing.query_id
    assert (position.batch_id, position.planned_batch_id) == (None, 0)
    (source,) = position.sources
    assert (source.processed, source.planned) == (None, {story.topic: story.failing.end})

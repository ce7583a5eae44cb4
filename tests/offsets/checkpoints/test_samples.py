"""Checkpoints of Spark, read whole and while they grow, against the progress events it sent."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sparklag_offsets.checkpoints import CheckpointPosition, CheckpointStore, read_checkpoint
from sparklag_schemas import Offsets
from tests.offsets.checkpoints.folders import SAMPLES, batches

Sources = dict[int, tuple[Offsets | None, Offsets | None]]

STORE = CheckpointStore({}, 10.0)


def at(topic: str, *offsets: int) -> Offsets:
    return {topic: dict(enumerate(offsets))}


def done(*processed: Offsets | None) -> Sources:
    return {source: (offsets, None) for source, offsets in enumerate(processed)}


ORDERS, PAYMENTS = at("orders", 12, 8), at("payments", 5)
EXPECTED: dict[str, tuple[int | None, int | None, Sources]] = {
    "assign": (0, None, done(at("asg", 5))),
    "available_now": (2, None, done(at("an", 25, 25))),
    "batch_fails": (0, 1, {0: (at("fl", 5, 5), at("fl", 7, 7))}),
    "continuous": (8, None, done(at("ct", 13, 13))),
    "empty_topic": (0, None, done(at("emp", 0, 0))),
    "limited": (4, None, done(at("s2", 50, 50))),
    "offsets_v2": (2, None, done(ORDERS)),
    "offsets_v2_in_flight": (0, 1, {0: (ORDERS, PAYMENTS | ORDERS)}),
    "offsets_v2_named_sources": (5, None, done(PAYMENTS, ORDERS, ORDERS)),
    "offsets_v2_source_without_data": (0, None, {1: (ORDERS, None)}),
    "offsets_v2_topic_read_twice": (0, None, done(PAYMENTS | ORDERS, PAYMENTS)),
    "partitions_added": (1, None, done(at("grow", 2, 2, 0, 0))),
    "rate_only": (1, None, done(None)),
    "rate_plus_kafka": (2, None, done(None, at("ur", 5, 5))),
    "single_kafka": (2, None, done(at("s1", 10, 10))),
    "single_kafka_uncommitted_last": (1, 2, {0: (at("s1", 8, 8), at("s1", 10, 10))}),
    "spark_3_5": (0, None, done(ORDERS)),
    "starting_latest": (1, None, done(at("lat", 4, 3))),
    "stateful_watermark": (3, None, done(at("st", 7, 7))),
    "subscribe_pattern": (1, None, done(at("pt-a", 5, 5) | at("pt-b", 0, 0))),
    "topic_recreated_failOnDataLoss_false": (0, None, done(at("del-false", 10, 10))),
    "topic_recreated_failOnDataLoss_true": (0, None, done(at("del-true", 10, 10))),
    "topic_recreated_fewer_failOnDataLoss_false": (1, None, done(at("rec-false-0", 2, 2))),
    "topic_recreated_fewer_failOnDataLoss_true": (
        *(0, 1),
        {0: (at("rec-true-0", 10, 10), at("rec-true-0", 2, 2))},
    ),
    "union_two_kafka": (1, None, done(at("ua", 5, 5), at("ub", 7, 7))),
}


def test_there_is_an_expectation_for_every_sample() -> None:
    assert {Path(result).name for result in STORE.find(f"{SAMPLES}/*")} == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_a_checkpoint_that_spark_wrote_is_read(name: str) -> None:
    batch_id, planned_batch_id, sources = EXPECTED[name]
    position = read_checkpoint(STORE, str(SAMPLES / name))
    assert position.query_id == json.loads((SAMPLES / name / "metadata").read_text())["id"]
    assert batches(position) == (batch_id, planned_batch_id)
    assert {each.source: (each.processed, each.planned) for each in position.sources} == sources
    assert position.kafka == {number for number, at in sources.items() if at[0] is not None}
    assert (position.planned_at_ms is None) == (planned_batch_id is None)


@pytest.mark.parametrize("name", EXPECTED)
def test_while_it_grows_each_batch_is_planned_then_committed(name: str, tmp_path: Path) -> None:
    sample, grown = SAMPLES / name, tmp_path / "grown"
    for log in ("offsets", "commits"):
        (grown / log).mkdir(parents=True)
    shutil.copy(sample / "metadata", grown)
    reader = STORE.reader(str(grown))
    assert reader.poll() == CheckpointPosition(
        json.loads((sample / "metadata").read_text())["id"], None, None, None, None, (), frozenset()
    )
    committed = position = None
    for batch_id in sorted(int(p.name) for p in (sample / "offsets").iterdir() if p.suffix == ""):
        shutil.copy(sample / "offsets" / str(batch_id), grown / "offsets")
        position = reader.poll()
        assert position is not None
        assert batches(position) == (committed, batch_id)
        planned = {source.source: source.planned for source in position.sources}
        if not (sample / "commits" / str(batch_id)).exists():
            break
        shutil.copy(sample / "commits" / str(batch_id), grown / "commits")
        position = reader.poll()
        assert position is not None
        assert batches(position) == (batch_id, None)
        processed = {source.source: source.processed for source in position.sources}
        if name != "offsets_v2_named_sources":
            assert {number: processed[number] for number in planned} == planned
        assert reader.poll() is None
        committed = batch_id
    whole = read_checkpoint(STORE, str(sample))
    assert position is not None
    assert (position.query_id, position.sources) == (whole.query_id, whole.sources)


def progress_events() -> list[tuple[str, dict[str, Any]]]:
    """The output of Spark 4.0 itself: its progress beside the files that it wrote."""
    result = []
    for file in sorted((SAMPLES.parent / "progress").glob("*.progress*.json")):
        sample = file.name.partition(".")[0]
        event = json.loads(file.read_text())
        checkpoint = SAMPLES / sample.partition("_restart")[0].removesuffix("_replay")
        wrote = checkpoint / "offsets" / str(event["batchId"])
        if wrote.exists() and event["id"] in (checkpoint / "metadata").read_text():
            result.append((str(wrote), event))
    return result


def test_offsets_files_agree_with_the_end_offsets_of_the_progress_events() -> None:
    from sparklag_offsets.checkpoints.offset_log import parse_offsets

    events = progress_events()
    assert len(events) > 20
    for wrote, event in events:
        file = parse_offsets(Path(wrote).read_bytes(), wrote)
        for number, source in enumerate(event["sources"]):
            line = file.lines[number]
            if line.kafka is None:
                assert not source["description"].startswith("KafkaV2")
                continue
            end = source["endOffset"]
            end = json.loads(end) if isinstance(end, str) else end
            assert line.kafka == {
                topic: {int(partition): offset for partition, offset in partitions.items()}
                for topic, partitions in end.items()
            }

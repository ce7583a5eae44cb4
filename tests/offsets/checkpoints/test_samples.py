"""What Spark wrote, read whole, and read while it grows, against the progress events it sent."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sparklag_offsets.checkpoints import CheckpointPosition, CheckpointStore, read_checkpoint
from sparklag_schemas import Offsets
from tests.offsets.checkpoints.folders import SAMPLES

Sources = dict[int, tuple[Offsets | None, Offsets | None]]

EXPECTED: dict[str, tuple[int | None, int | None, Sources]] = {
    "assign": (0, None, {0: ({"asg": {0: 5}}, None)}),
    "available_now": (2, None, {0: ({"an": {0: 25, 1: 25}}, None)}),
    "batch_fails": (0, 1, {0: ({"fl": {0: 5, 1: 5}}, {"fl": {0: 7, 1: 7}})}),
    "continuous": (8, None, {0: ({"ct": {0: 13, 1: 13}}, None)}),
    "empty_topic": (0, None, {0: ({"emp": {0: 0, 1: 0}}, None)}),
    "limited": (4, None, {0: ({"s2": {0: 50, 1: 50}}, None)}),
    "offsets_v2": (2, None, {0: ({"orders": {0: 12, 1: 8}}, None)}),
    "offsets_v2_in_flight": (
        0,
        1,
        {0: ({"orders": {0: 12, 1: 8}}, {"payments": {0: 5}, "orders": {0: 12, 1: 8}})},
    ),
    "offsets_v2_named_sources": (
        5,
        None,
        {
            0: ({"payments": {0: 5}}, None),
            1: ({"orders": {0: 12, 1: 8}}, None),
            2: ({"orders": {0: 12, 1: 8}}, None),
        },
    ),
    "offsets_v2_source_without_data": (0, None, {1: ({"orders": {0: 12, 1: 8}}, None)}),
    "offsets_v2_topic_read_twice": (
        0,
        None,
        {0: ({"payments": {0: 5}, "orders": {0: 12, 1: 8}}, None), 1: ({"payments": {0: 5}}, None)},
    ),
    "partitions_added": (1, None, {0: ({"grow": {0: 2, 1: 2, 2: 0, 3: 0}}, None)}),
    "rate_only": (1, None, {0: (None, None)}),
    "rate_plus_kafka": (2, None, {0: (None, None), 1: ({"ur": {0: 5, 1: 5}}, None)}),
    "single_kafka": (2, None, {0: ({"s1": {0: 10, 1: 10}}, None)}),
    "single_kafka_uncommitted_last": (1, 2, {0: ({"s1": {0: 8, 1: 8}}, {"s1": {0: 10, 1: 10}})}),
    "spark_3_5": (0, None, {0: ({"orders": {0: 12, 1: 8}}, None)}),
    "starting_latest": (1, None, {0: ({"lat": {0: 4, 1: 3}}, None)}),
    "stateful_watermark": (3, None, {0: ({"st": {0: 7, 1: 7}}, None)}),
    "subscribe_pattern": (1, None, {0: ({"pt-a": {0: 5, 1: 5}, "pt-b": {0: 0, 1: 0}}, None)}),
    "topic_recreated_failOnDataLoss_false": (0, None, {0: ({"del-false": {0: 10, 1: 10}}, None)}),
    "topic_recreated_failOnDataLoss_true": (0, None, {0: ({"del-true": {0: 10, 1: 10}}, None)}),
    "topic_recreated_fewer_failOnDataLoss_false": (
        1,
        None,
        {0: ({"rec-false-0": {0: 2, 1: 2}}, None)},
    ),
    "topic_recreated_fewer_failOnDataLoss_true": (
        0,
        1,
        {0: ({"rec-true-0": {0: 10, 1: 10}}, {"rec-true-0": {0: 2, 1: 2}})},
    ),
    "union_two_kafka": (
        1,
        None,
        {0: ({"ua": {0: 5, 1: 5}}, None), 1: ({"ub": {0: 7, 1: 7}}, None)},
    ),
}


def sources_of(position: CheckpointPosition) -> Sources:
    return {source.source: (source.processed, source.planned) for source in position.sources}


def store() -> CheckpointStore:
    return CheckpointStore({}, 10.0)


def test_there_is_an_expectation_for_every_sample() -> None:
    assert {Path(found).name for found in store().find(f"{SAMPLES}/*")} == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_a_checkpoint_that_spark_wrote_is_read(name: str) -> None:
    batch_id, planned_batch_id, sources = EXPECTED[name]
    position = read_checkpoint(store(), str(SAMPLES / name))
    assert position.query_id == json.loads((SAMPLES / name / "metadata").read_text())["id"]
    assert (position.batch_id, position.planned_batch_id) == (batch_id, planned_batch_id)
    assert sources_of(position) == sources
    assert [source.kafka for source in position.sources] == [
        processed is not None for processed, _ in sources.values()
    ]
    assert (position.planned_at_ms is None) == (planned_batch_id is None)


@pytest.mark.parametrize("name", EXPECTED)
def test_read_while_it_grows_every_batch_is_seen_planned_and_then_committed(
    name: str, tmp_path: Path
) -> None:
    sample, grown = SAMPLES / name, tmp_path / "grown"
    for log in ("offsets", "commits"):
        (grown / log).mkdir(parents=True)
    shutil.copy(sample / "metadata", grown)
    reader = store().reader(str(grown))
    assert reader.poll() == CheckpointPosition(
        json.loads((sample / "metadata").read_text())["id"], None, None, None, None, ()
    )
    committed = position = None
    for batch_id in sorted(int(p.name) for p in (sample / "offsets").iterdir() if p.suffix == ""):
        shutil.copy(sample / "offsets" / str(batch_id), grown / "offsets")
        position = reader.poll()
        assert position is not None
        assert (position.batch_id, position.planned_batch_id) == (committed, batch_id)
        planned = {source.source: source.planned for source in position.sources}
        if not (sample / "commits" / str(batch_id)).exists():
            break
        shutil.copy(sample / "commits" / str(batch_id), grown / "commits")
        position = reader.poll()
        assert position is not None
        assert (position.batch_id, position.planned_batch_id) == (batch_id, None)
        processed = {source.source: source.processed for source in position.sources}
        if name != "offsets_v2_named_sources":
            assert {number: processed[number] for number in planned} == planned
        assert reader.poll() is None
        committed = batch_id
    whole = read_checkpoint(store(), str(sample))
    assert position is not None
    assert (position.query_id, position.sources) == (whole.query_id, whole.sources)


def progress_events() -> list[tuple[str, dict[str, Any]]]:
    """Of Spark 4.0 itself: what it said beside what it wrote."""
    found = []
    for file in sorted((SAMPLES.parent / "progress").glob("*.progress*.json")):
        sample = file.name.partition(".")[0]
        event = json.loads(file.read_text())
        checkpoint = SAMPLES / sample.partition("_restart")[0].removesuffix("_replay")
        wrote = checkpoint / "offsets" / str(event["batchId"])
        if wrote.exists() and event["id"] in (checkpoint / "metadata").read_text():
            found.append((str(wrote), event))
    return found


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
            said = source["endOffset"]
            said = json.loads(said) if isinstance(said, str) else said
            assert line.kafka == {
                topic: {int(partition): offset for partition, offset in partitions.items()}
                for topic, partitions in said.items()
            }

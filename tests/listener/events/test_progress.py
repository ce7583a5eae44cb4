"""Spark's progress JSON, parsed."""

from __future__ import annotations

import json
import random
from datetime import datetime
from typing import Any

import pytest

from sparklag_listener.events.progress import Progress, parse_progress
from sparklag_schemas import Batch, MalformedMessage, Offsets
from tests import samples


def kafka_offsets(end_offset: Any) -> Offsets | None:
    if isinstance(end_offset, str):
        end_offset = json.loads(end_offset)
    if end_offset is None:
        return None
    return {
        topic: {int(number): offset for number, offset in partitions.items()}
        for topic, partitions in end_offset.items()
    }


def processed(progress: Progress) -> dict[int, Offsets | None]:
    return {index: source.processed for index, source in progress.sources.items()}


@pytest.mark.parametrize("name", samples.PROGRESS)
def test_every_sample_reports_what_the_standard_library_reads_in_it(name: str) -> None:
    document = samples.progress_document(name)
    progress = parse_progress(samples.progress_text(name))
    assert progress.query_id == document["id"]
    assert progress.run_id == document["runId"]
    assert progress.name == document["name"]
    assert progress.batch_id == document["batchId"]
    assert processed(progress) == {
        index: kafka_offsets(source["endOffset"])
        for index, source in enumerate(document["sources"])
        if source["description"].startswith("Kafka")
    }
    assert progress.batch.rows == document["numInputRows"]
    assert progress.batch.phases_ms == document["durationMs"]
    assert progress.batch.duration_ms == document["durationMs"]["triggerExecution"]
    started = datetime.strptime(document["timestamp"], "%Y-%m-%dT%H:%M:%S.%f%z")
    assert progress.batch.started_at == round(started.timestamp() * 1000)
    took_ms = document["durationMs"]["triggerExecution"]
    assert progress.completed_at_ms == progress.batch.started_at + took_ms


def document(**fields: Any) -> str:
    return json.dumps({**samples.progress_document("single_kafka.progress1"), **fields})


def source(end_offset: Any, description: str = "KafkaV2[Subscribe[s1]]") -> dict[str, Any]:
    return {"description": description, "startOffset": None, "endOffset": end_offset}


@pytest.mark.parametrize("seed", range(20))
def test_an_end_offset_is_read_as_an_object_and_as_text_alike(seed: int) -> None:
    chance = random.Random(seed)
    offsets = {
        f"topic.{number}-é": {
            str(partition): chance.randrange(2**62) for partition in range(chance.randint(1, 30))
        }
        for number in range(chance.randint(1, 3))
    }
    written = [offsets, json.dumps(offsets), json.dumps(offsets, indent=1), None]
    progress = parse_progress(document(sources=[source(end) for end in written]))
    assert list(processed(progress).values()) == [kafka_offsets(end) for end in written]


def test_a_file_source_is_not_taken_for_kafka_whatever_its_offset() -> None:
    files = source({"logOffset": 3}, "FileStreamSource[file:/data/KafkaV2]")
    rate = source(17, "RateStreamV2[rowsPerSecond=5]")
    memory = source("-", "MemoryStream[value#1]")
    progress = parse_progress(document(sources=[files, rate, memory, source({"s1": {"0": 1}})]))
    assert processed(progress) == {3: {"s1": {0: 1}}}


@pytest.mark.parametrize(
    "offset",
    [{"s1": 5}, {"s1": {"first": 5}}, {"shareGroup": "g"}, [1], "{", '{"s1":', "null", "", 5],
)
def test_a_source_with_offsets_of_another_form_costs_itself_alone(offset: Any) -> None:
    share = source(offset, "KafkaShare[Subscribe[s1]]")
    progress = parse_progress(document(sources=[share, source({"s2": {"0": 7}})]))
    assert processed(progress) == {0: None, 1: {"s2": {0: 7}}}
    assert progress.sources[0].topics == ["s1"]


@pytest.mark.parametrize("name", samples.OTHER_SOURCES)
def test_a_kafka_source_is_read_beside_any_other(name: str) -> None:
    other = samples.OTHER_SOURCES[name]["progress"]
    kafka = source({"s1": {"0": 7}})
    for sources, index in (([other, kafka], 1), ([kafka, other], 0)):
        progress = parse_progress(document(sources=sources))
        assert processed(progress) == {index: {"s1": {0: 7}}}
        assert progress.batch.rows == 6


ODD: list[Any] = [None, [], {}, 5, -1.5, True, "x", [[None]], {"a": [{"b": None}]}, 10**400, ""]
FIELDS = ("description", "startOffset", "endOffset", "latestOffset", "numInputRows", "metrics")


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: str(odd)[:9])
def test_any_shape_of_another_source_or_field_costs_nothing_beside_it(odd: Any) -> None:
    others = [odd, *({**source(17, "Custom"), field: odd} for field in FIELDS)]
    kafka = {**source({"s1": {"0": 7}}), "numInputRows": odd, "metrics": odd}
    fields = ("name", "durationMs", "numInputRows", "eventTime", "stateOperators", "sink",
              "observedMetrics", "batchDuration", "inputRowsPerSecond")  # fmt: skip
    for text in (
        document(sources=[*others, kafka]),
        document(sources=[*others, kafka], durationMs={"addBatch": odd, "triggerExecution": 30}),
        document(sources=[kafka, *others], **dict.fromkeys(fields, odd)),
    ):
        progress = parse_progress(text)
        assert list(processed(progress).values()) == [{"s1": {0: 7}}]
        assert progress.batch_id == 1


def test_a_source_without_a_start_offset_has_its_end() -> None:
    progress = parse_progress(document(sources=[source({"s1": {"0": 7}})]))
    assert (progress.sources[0].processed, progress.sources[0].began) == ({"s1": {0: 7}}, None)


def test_rows_are_the_sum_of_the_sources_where_only_those_say_them() -> None:
    sample = samples.progress_document("union_two_kafka.progress1")
    rows = sample.pop("numInputRows")
    assert rows > 0
    assert parse_progress(json.dumps(sample)).batch.rows == rows


def test_a_progress_without_duration_completed_when_it_started() -> None:
    progress = parse_progress(document(durationMs={}))
    assert progress.batch.duration_ms is None
    assert progress.completed_at_ms == progress.batch.started_at


def test_rows_are_never_negative() -> None:
    assert parse_progress(document(numInputRows=-1)).batch.rows == 0


@pytest.mark.parametrize(
    ("text", "reports"),
    [
        ("", "progress of a query"),
        ("{", "progress of a query"),
        (document()[:-1], "progress of a query"),
        ("[]", "progress of a query"),
        ("null", "progress of a query"),
        ('{"id":"a"}', "runId"),
        (document(batchId="one"), "batchId"),
        (document(timestamp="yesterday"), r"\$.timestamp"),
        (document(sources=None), "sources"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_is_wrong(text: str, reports: str) -> None:
    with pytest.raises(MalformedMessage, match=reports):
        parse_progress(text)


def test_an_idle_progress_is_of_the_batch_before() -> None:
    idle = {"durationMs": {"latestOffset": 2, "triggerExecution": 3}, "numInputRows": 0}
    progress = parse_progress(document(batchId=5, **idle))
    assert (progress.batch_id, progress.idle) == (4, True)
    progress = parse_progress(document(batchId=0, **idle))
    assert (progress.batch_id, progress.idle) == (None, True)


def kafka_source(end: Any, latest: Any) -> dict[str, Any]:
    return {"description": "KafkaV2[Subscribe[s1]]", "endOffset": end, "latestOffset": latest}


def batch(**fields: Any) -> Batch:
    document = {**samples.progress_document("single_kafka.progress1"), **fields}
    return parse_progress(json.dumps(document)).batch


def ms(timestamp: str | None) -> int | None:
    if timestamp is None:
        return None
    return round(datetime.strptime(timestamp, "%Y-%m-%dT%H:%M:%S.%f%z").timestamp() * 1000)


@pytest.mark.parametrize("name", samples.PROGRESS)
def test_every_sample_is_limited_where_a_batch_ends_before_the_log_did(name: str) -> None:
    ends = [
        (source["endOffset"], source.get("latestOffset"))
        for source in samples.progress_document(name)["sources"]
        if source["description"].startswith("Kafka")
    ]
    message = [
        any(
            end[topic][number] < latest[topic][number]
            for topic, numbers in end.items()
            for number in numbers
        )
        for end, latest in ends
        if latest is not None
    ]
    expected = any(message) if message else None
    assert parse_progress(samples.progress_text(name)).batch.rate_limited is expected


@pytest.mark.parametrize("name", samples.PROGRESS)
def test_every_sample_reports_its_state_and_its_event_time(name: str) -> None:
    document = samples.progress_document(name)
    result = parse_progress(samples.progress_text(name)).batch
    operators = document["stateOperators"]
    rows = sum(one["numRowsTotal"] for one in operators) if operators else None
    memory = sum(one["memoryUsedBytes"] for one in operators) if operators else None
    assert (result.state_rows, result.state_memory_bytes) == (rows, memory)
    times = document.get("eventTime") or {}
    assert result.max_event_time_at == ms(times.get("max"))
    assert result.watermark_at == (ms(times.get("watermark")) or None)
    assert (operators != []) == name.startswith("stateful"), "the samples have both kinds"


FULL = kafka_source({"s1": {"0": 5}}, {"s1": {"0": 5}})
LIMITED = kafka_source({"s2": {"0": 5}}, {"s2": {"0": 6}})
UNKNOWN, IDLE = kafka_source({"s3": {"0": 5}}, None), kafka_source(None, {"s4": {"0": 5}})
ENDS = {"s1": {"0": 5, "1": 5}}
ONE_MORE = {"s1": {"1": 6, "0": 5}}
OTHERS = {"s1": {"0": 5, "2": 9}, "s2": {"0": 1}}


@pytest.mark.parametrize(
    ("sources", "is_limited"),
    [
        pytest.param([kafka_source(ENDS, ONE_MORE)], True, id="one partition has more"),
        pytest.param([kafka_source(json.dumps(ENDS), json.dumps(ONE_MORE))], True, id="as text"),
        pytest.param([kafka_source({"s1": {"0": 5, "1": 6}}, ONE_MORE)], False, id="another order"),
        pytest.param(
            [kafka_source({"s1": {"0": 5, "7": 1}}, OTHERS)], False, id="other partitions"
        ),
        pytest.param([FULL, LIMITED], True, id="one source is enough"),
        pytest.param([FULL, UNKNOWN, IDLE], False, id="unknown ones are left out"),
        pytest.param([UNKNOWN, IDLE], None, id="nothing is known"),
        pytest.param([], None, id="no source"),
    ],
)
def test_a_limited_batch_leaves_records(sources: list[Any], is_limited: bool | None) -> None:
    assert batch(sources=sources).rate_limited is is_limited


def test_state_of_several_operators_is_their_sum_and_memory_may_be_left_out() -> None:
    both = [{"numRowsTotal": 3, "memoryUsedBytes": 70}, {"numRowsTotal": 4}]
    result = batch(stateOperators=both)
    assert (result.state_rows, result.state_memory_bytes) == (7, 70)
    result = batch(stateOperators=both[1:])
    assert (result.state_rows, result.state_memory_bytes) == (4, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"stateOperators": [{"numRowsTotal": "many"}]},
        {"stateOperators": {}},
        {"stateOperators": None, "eventTime": None},
        {"eventTime": {"watermark": "yesterday"}},
        {"eventTime": {"max": 5}},
        {"eventTime": []},
        {"sources": [kafka_source({"s1": {"0": 5}}, {"s1": 5})]},
        {"sources": [kafka_source({"s1": {"0": 5}}, 5)]},
    ],
)
def test_what_cannot_be_read_of_it_costs_no_observation(fields: dict[str, Any]) -> None:
    result = batch(**fields)
    assert result.rows == 6
    assert not result.rate_limited
    assert result.state_rows is result.watermark_at is result.max_event_time_at is None

"""Why a batch may lag, as Spark's progress says it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from sparklag_listener.events.progress import parse_progress
from sparklag_schemas import Batch
from tests import samples


def kafka_source(end: Any, latest: Any) -> dict[str, Any]:
    return {"description": "KafkaV2[Subscribe[s1]]", "endOffset": end, "latestOffset": latest}


def batch(**fields: Any) -> Batch:
    """Of a progress with `fields` changed."""
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
    said = [
        any(
            end[topic][number] < latest[topic][number]
            for topic, numbers in end.items()
            for number in numbers
        )
        for end, latest in ends
        if latest is not None
    ]
    expected = any(said) if said else None
    assert parse_progress(samples.progress_text(name)).batch.rate_limited is expected


@pytest.mark.parametrize("name", samples.PROGRESS)
def test_every_sample_says_its_state_and_its_event_time(name: str) -> None:
    document = samples.progress_document(name)
    found = parse_progress(samples.progress_text(name)).batch
    operators = document["stateOperators"]
    rows = sum(one["numRowsTotal"] for one in operators) if operators else None
    memory = sum(one["memoryUsedBytes"] for one in operators) if operators else None
    assert (found.state_rows, found.state_memory_bytes) == (rows, memory)
    times = document.get("eventTime") or {}
    assert found.max_event_time_at == ms(times.get("max"))
    assert found.watermark_at == (ms(times.get("watermark")) or None)
    assert (operators != []) == name.startswith("stateful"), "the samples have both kinds"


def test_one_partition_that_had_more_is_enough() -> None:
    end, latest = {"s1": {"0": 5, "1": 5}}, {"s1": {"1": 6, "0": 5}}
    assert batch(sources=[kafka_source(end, latest)]).rate_limited is True
    assert batch(sources=[kafka_source(json.dumps(end), json.dumps(latest))]).rate_limited is True


def test_the_order_in_which_spark_writes_the_partitions_says_nothing() -> None:
    end, latest = {"s1": {"0": 5, "1": 6}}, {"s1": {"1": 6, "0": 5}}
    assert batch(sources=[kafka_source(end, latest)]).rate_limited is False


def test_a_partition_that_only_one_side_names_says_nothing() -> None:
    end, latest = {"s1": {"0": 5, "7": 1}}, {"s1": {"0": 5, "2": 9}, "s2": {"0": 1}}
    assert batch(sources=[kafka_source(end, latest)]).rate_limited is False


def test_of_two_sources_either_may_be_limited_and_one_that_says_nothing_is_left_out() -> None:
    full = kafka_source({"s1": {"0": 5}}, {"s1": {"0": 5}})
    limited = kafka_source({"s2": {"0": 5}}, {"s2": {"0": 6}})
    silent = kafka_source({"s3": {"0": 5}}, None)
    idle = kafka_source(None, {"s4": {"0": 5}})
    assert batch(sources=[full, limited]).rate_limited is True
    assert batch(sources=[full, silent, idle]).rate_limited is False
    assert batch(sources=[silent, idle]).rate_limited is None
    assert batch(sources=[]).rate_limited is None


def test_state_of_several_operators_is_their_sum_and_memory_may_be_left_out() -> None:
    both = [{"numRowsTotal": 3, "memoryUsedBytes": 70}, {"numRowsTotal": 4}]
    found = batch(stateOperators=both)
    assert (found.state_rows, found.state_memory_bytes) == (7, 70)
    found = batch(stateOperators=both[1:])
    assert (found.state_rows, found.state_memory_bytes) == (4, None)


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
    found = batch(**fields)
    assert found.rows == 6
    assert not found.rate_limited
    assert found.state_rows is found.watermark_at is found.max_event_time_at is None

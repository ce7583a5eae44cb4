"""`examples/spark_reads_lag.py` on real Kafka and real Spark; its schema held to the contract."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import pytest

from spark_reads_lag import EVENT
from sparklag_jobs.broker.child_process import ChildProcess
from sparklag_schemas import LagEvent, encode
from sparklag_schemas.avro.schema import declared
from sparklag_schemas.messages.topics import key_of
from tests.child_processes import running
from tests.examples.processes import EXAMPLES, example_environment
from tests.messages import lag_event
from tests.second_client import SecondClient
from tests.spark_configuration import kafka_options, pyspark_environment
from tests.waiting import wait_for

START_S: Final = 240.0
_READS: Final = {"STRING": {"string", "enum"}, "BIGINT": {"long", "int"}, "DOUBLE": {"double"}}
"""What of Avro each of Spark's types takes."""


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.spark
def test_each_event_is_a_row(second_client: SecondClient, topic_name: str, tmp_path: Path) -> None:
    topic = second_client.create(topic_name, 2)
    events = [
        lag_event(query_id="a", measured_at=1, total_lag=65, max_time_lag_s=1.5),
        lag_event(query_id="b", measured_at=2, query="bills", status="UNKNOWN", total_lag=None),
        lag_event(query_id="a", measured_at=3, total_lag=7),
    ]
    for value in [*map(encode, events[:2]), b"junk", b"\0\0\0\0\1\2", b"{}", encode(events[2])]:
        key = "b" if b'"query_id":"b"' in value else "a"
        second_client.produce(topic, [value], key=key_of(key))
    second_client.produce(topic, [None], key=key_of("b"))

    example = ChildProcess(
        "the example",
        [
            sys.executable, str(EXAMPLES / "spark_reads_lag.py"),
            second_client.bootstrap_servers, topic,
        ],
        log_path=tmp_path / "log",
        environment=example_environment(
            **pyspark_environment("--master", "local[1]", *kafka_options())
        ),
        directory=tmp_path,
    )  # fmt: skip
    with running(example):
        wait_for(lambda: len(rows(example.log_path)) >= 3, "all are shown", START_S)
    names = ("query_id", "query", "status", "total_lag", "max_time_lag_s", "event_id")
    expected = [
        {
            name: "NULL" if (value := getattr(event, name)) is None else str(value)
            for name in (*names, "observed_at", "measured_at")
        }
        for event in events
    ]
    assert sorted(rows(example.log_path), key=lambda row: int(row["measured_at"])) == expected


def rows(log: Path) -> list[dict[str, str]]:
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in log.read_text().splitlines()
        if line.startswith("|")
    ]
    names = lines[0] if lines else []
    return [dict(zip(names, cells, strict=True)) for cells in lines if cells != names]


def test_its_schema_is_of_the_contract() -> None:
    fields = {field["name"]: avro_types(field["type"]) for field in declared(LagEvent)["fields"]}
    for name, sql_type in (column.split() for column in EVENT.split(",")):
        assert fields[name] - {"null"} <= _READS[sql_type], name


def avro_types(message: Any) -> set[str]:
    types = message if isinstance(message, list) else [message]
    return {one["type"] if isinstance(one, dict) else one for one in types}

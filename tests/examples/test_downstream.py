"""The programs of docs/program/downstream.md, each with the tool that it is for."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

import pytest

from sparklag_jobs.broker.child_process import ChildProcess
from sparklag_jobs.broker.maven import Module, resolve_jars
from sparklag_schemas import encode
from sparklag_schemas.messages.topics import key_of
from tests.child_processes import running
from tests.document_blocks import items
from tests.examples.processes import example_environment
from tests.examples.test_lag_reader import java
from tests.messages import lag_event
from tests.second_client import SecondClient
from tests.spark_configuration import kafka_options, pyspark_environment
from tests.waiting import wait_for

_PAGE: Final = "docs/program/downstream.md"
_FLINK_SQL: Final = Path(__file__).parent / "java" / "FlinkSql.java"
_START_S: Final = 240.0


def flink_jars() -> list[Path]:
    names = "clients connector-base json table-api-java-bridge table-planner-loader table-runtime"
    return resolve_jars(
        [
            *(Module("org.apache.flink", f"flink-{name}", "2.2.1") for name in names.split()),
            Module("org.apache.flink", "flink-sql-connector-kafka", "5.0.0-2.2"),
            Module("org.slf4j", "slf4j-nop", "2.0.17"),
        ]
    )


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("at", "tool"),
    [
        (0, "python"),
        (1, "java"),
        pytest.param(2, "flink", marks=pytest.mark.slow),
        pytest.param(3, "spark", marks=[pytest.mark.slow, pytest.mark.spark]),
    ],
)
def test_it_shows_the_queries_with_a_long_time_lag(
    at: int, tool: str, second_client: SecondClient, topic_name: str, tmp_path: Path
) -> None:
    topic = second_client.create(topic_name)
    code = [item.code for item in items() if item.page == _PAGE][at]
    code = code.replace("broker:9092", second_client.bootstrap_servers)
    program = tmp_path / f"program.{tool}"
    program.write_text(re.sub(r"""(?<=["'])consumer-lag(?=["'])""", topic, code))
    command = [sys.executable, str(program)]
    if tool == "java":
        command = java(program)
    elif tool == "flink":
        command = java(_FLINK_SQL, str(program), jars=flink_jars())
    spark = pyspark_environment("--master", "local[1]", *kafka_options()) if tool == "spark" else {}
    example = ChildProcess(
        tool, command, log_path=tmp_path / "log", environment=example_environment(**spark)
    )

    def publish(time_lag_s: float) -> None:
        second_client.produce(topic, [None], key=b"forgotten")
        for query, max_time_lag_s in {"a": 600.0, "b": None, "orders": time_lag_s}.items():
            event = lag_event(query_id=query, query=query, max_time_lag_s=max_time_lag_s)
            second_client.produce(topic, [encode(event)], key=key_of(query))

    def is_shown() -> bool:
        publish(700.5)
        assert example.is_alive(), example.describe_end()
        return "orders" in example.log_path.read_text()

    with running(example):
        wait_for(is_shown, "the query is shown", _START_S)
        if tool == "flink":
            publish(5.0)
            wait_for(lambda: example.has_logged("-D"), "the query is gone")
    words = re.findall(r'(\w+)["| ]+OK["| ]+([\d.]+)', example.log_path.read_text())
    assert set(words) == {("orders", "700.5")}, example.log_path.read_text()

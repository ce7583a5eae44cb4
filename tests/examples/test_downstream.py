"""The programs of docs/program/downstream.md, each with the tool that it is for."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
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
from tests.examples.test_lag_reader import java, reader_jars
from tests.messages import lag_event
from tests.second_client import SecondClient
from tests.spark_configuration import kafka_options, pyspark_environment
from tests.waiting import wait_for

pytestmark = pytest.mark.kafka
_FLINK: Final = (
    *("clients", "connector-base", "json", "table-api-java-bridge"),
    *("table-planner-loader", "table-runtime"),
)
_START_S: Final = 240.0
_PROGRAMS: Final = dict(
    zip(
        ("python", "java", "flink", "spark"),
        (
            item.code
            for item in items()
            if item.page == "docs/program/downstream.md" and item.run_by
        ),
        strict=True,
    )
)


def flink_jars() -> list[Path]:
    return resolve_jars(
        [
            *(Module("org.apache.flink", f"flink-{name}", "2.2.1") for name in _FLINK),
            Module("org.apache.flink", "flink-sql-connector-kafka", "5.0.0-2.2"),
            Module("org.slf4j", "slf4j-nop", "2.0.17"),
        ]
    )


_COMMANDS: Final[dict[str, Callable[[Path], list[str]]]] = {
    "python": lambda program: [sys.executable, str(program)],
    "java": lambda program: java(reader_jars(), program),
    "flink": lambda program: java(
        flink_jars(), Path(__file__).parent / "java" / "FlinkSql.java", str(program)
    ),
    "spark": lambda program: [sys.executable, str(program)],
}


@pytest.mark.parametrize(
    "tool",
    [
        "python",
        "java",
        pytest.param("flink", marks=pytest.mark.slow),
        pytest.param("spark", marks=[pytest.mark.slow, pytest.mark.spark]),
    ],
)
def test_it_shows_the_queries_with_a_long_time_lag(
    tool: str, second_client: SecondClient, topic_name: str, tmp_path: Path
) -> None:
    topic = second_client.create(topic_name)
    program = tmp_path / f"program.{tool}"
    code = _PROGRAMS[tool].replace("broker:9092", second_client.bootstrap_servers)
    program.write_text(re.sub(r"""(["'])consumer-lag\1""", rf"\1{topic}\1", code))
    options = kafka_options() if tool == "spark" else []
    example = ChildProcess(
        tool,
        _COMMANDS[tool](program),
        log_path=tmp_path / "log",
        environment=example_environment(**pyspark_environment("--master", "local[1]", *options)),
        directory=tmp_path,
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

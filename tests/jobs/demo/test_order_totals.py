"""The demo's query as a process, on a real broker."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparklag_jobs.broker.child_process import ChildProcess
from sparklag_jobs.broker.maven import spark_kafka_jars
from sparklag_jobs.demo import order_totals
from sparklag_jobs.demo.streams import Order
from sparklag_schemas.timestamps import epoch_ms
from tests.child_processes import running
from tests.end_to_end import Checkpoint
from tests.second_client import SecondClient
from tests.spark_cluster import SPARK_SUBMIT
from tests.spark_configuration import SUBMIT_OPTIONS
from tests.waiting import wait_for, wait_until_up

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

WINDOW_MS = 10_000
START_TIMEOUT_S = 300.0
AS_MODULE = [sys.executable, "-m", "sparklag_jobs.demo.order_totals"]


def _query(
    client: SecondClient, topic: str, tmp_path: Path, program: list[str], *more: str
) -> ChildProcess:
    command = [*program, "--bootstrap-servers", client.bootstrap_servers]
    command += ["--orders-topic", topic, "--totals-topic", f"{topic}-totals"]
    command += ["--checkpoint", str(tmp_path / "checkpoint"), *more]
    return ChildProcess(
        "the query",
        command,
        log_path=tmp_path / "query.log",
        # spark-submit would take the first python3 of PATH.
        environment={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )


def _await_batches(query: ChildProcess, tmp_path: Path, count: int) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    wait_until_up([query], lambda: len(checkpoint.committed_batches()) >= count, START_TIMEOUT_S)


def _send(client: SecondClient, topic: str, *orders: Order) -> None:
    for order in orders:
        client.produce(topic, [msgspec.json.encode(order)], key=order.customer.encode())


def _totals(client: SecondClient, topic: str, name: str) -> Counter[str]:
    values: list[dict[str, Any]] = [
        json.loads(message.value() or b"") for message in client.read_all(f"{topic}-totals")
    ]
    newest = {(value["customer"], value["from"]): value[name] for value in values}
    totals: Counter[str] = Counter()
    for (customer, _), total in newest.items():
        totals[customer] += total
    return totals


def test_totals_are_right_to_the_record_and_a_signal_ends_it(
    second_client: SecondClient, topic_name: str, tmp_path: Path
) -> None:
    topic = second_client.create(topic_name, 2)
    now = epoch_ms()
    # Two windows, both inside the watermark's ten seconds.
    orders = [
        Order(f"{number}", f"c{number % 3}", number, now - (number % 2) * WINDOW_MS // 2)
        for number in range(1, 301)
    ]
    _send(second_client, topic, *orders)
    limits = ("--max-offsets-per-trigger", "100", "--trigger-interval", "500 milliseconds")
    query = _query(second_client, topic, tmp_path, AS_MODULE, *limits)
    wanted = Counter(order.customer for order in orders)
    with running(query):
        _await_batches(query, tmp_path, 3)
        wait_for(lambda: _totals(second_client, topic, "orders") == wanted, "all are counted")
        query.send_signal(signal.SIGINT)
        assert query.wait(20), "it does not end"
    cents: Counter[str] = Counter()
    for order in orders:
        cents[order.customer] += order.amount_cents
    assert _totals(second_client, topic, "amount_cents") == cents
    assert query.exit_code == 0, query.describe_end()
    assert "Traceback" not in query.log_path.read_text()


def test_under_spark_submit_it_uses_the_session_it_is_given(
    second_client: SecondClient, topic_name: str, tmp_path: Path
) -> None:
    topic = second_client.create(topic_name, 2)
    jars = ",".join(str(jar) for jar in spark_kafka_jars())
    program = [SPARK_SUBMIT, *SUBMIT_OPTIONS, "--master", "local[1]", "--jars", jars]
    query = _query(second_client, topic, tmp_path, [*program, str(Path(order_totals.__file__))])
    with running(query):
        _send(second_client, topic, Order("1", "c", 5, epoch_ms()))
        _await_batches(query, tmp_path, 1)
        query.stop()
    assert "Traceback" not in query.log_path.read_text()


def test_a_query_that_fails_reports_why_and_exits_1(
    second_client: SecondClient, topic_name: str, tmp_path: Path
) -> None:
    topic = second_client.create(topic_name, 2)
    query = _query(second_client, topic, tmp_path, AS_MODULE)
    with running(query):
        _send(second_client, topic, Order("1", "c", 5, epoch_ms()))
        _await_batches(query, tmp_path, 1)
        second_client.delete(topic)
        assert query.wait(120), "it goes on without its topic"
    assert query.exit_code == 1
    assert "STREAM_FAILED" in query.log_end(60) or topic in query.log_end(60)

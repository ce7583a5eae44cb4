"""The demo's query as a process, on a real broker."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from sparklag_pipeline.broker.child_process import ChildProcess
from sparklag_pipeline.broker.maven import spark_kafka_jars
from sparklag_pipeline.demo import order_totals
from sparklag_pipeline.demo.orders import Order
from sparklag_schemas.timestamps import epoch_ms
from tests.local_kafka import LocalKafka
from tests.spark_cluster import SPARK_SUBMIT
from tests.spark_configuration import SUBMIT_OPTIONS
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

WINDOW_MS = 10_000
START_TIMEOUT_S = 300.0


def _query(
    kafka: LocalKafka, topic: str, tmp_path: Path, program: list[str], *more: str
) -> ChildProcess:
    command = [*program, "--bootstrap-servers", kafka.bootstrap_servers]
    command += ["--orders-topic", topic, "--totals-topic", f"{topic}-totals"]
    command += ["--checkpoint", str(tmp_path / "checkpoint"), *more]
    return ChildProcess(
        "the query",
        command,
        log_path=tmp_path / "query.log",
        # spark-submit would take the first python3 of PATH.
        environment={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )


def _as_module() -> list[str]:
    return [sys.executable, "-m", "sparklag_pipeline.demo.order_totals"]


def _commits(tmp_path: Path) -> int:
    return len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")))


def _await_batches(query: ChildProcess, tmp_path: Path, count: int) -> None:
    wait_for(
        lambda: _commits(tmp_path) >= count or not query.is_alive(),
        timeout_s=START_TIMEOUT_S,
        what=f"{count} batches",
    )
    assert query.is_alive(), query.describe_end()


def _create(kafka: LocalKafka, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for made in admin.create_topics([NewTopic(topic, 2, 1) for topic in topics]).values():
        made.result(30)


def _send(kafka: LocalKafka, topic: str, orders: list[Order]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for order in orders:
        producer.produce(topic, msgspec.json.encode(order), order.customer.encode())
    assert producer.flush(30) == 0


def _read_totals(kafka: LocalKafka, topic: str, wanted: Counter[str]) -> dict[str, Counter[str]]:
    """The newest total of each customer and window, summed, until they are what is wanted."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    newest: dict[tuple[str, str], dict[str, int]] = {}
    deadline = time.monotonic() + START_TIMEOUT_S
    orders: Counter[str] = Counter()
    cents: Counter[str] = Counter()
    try:
        while orders != wanted:
            assert time.monotonic() < deadline, f"totals are {orders}, not {wanted}"
            message = consumer.poll(1)
            if message is None or message.error() is not None:
                continue
            value = json.loads(message.value() or b"")
            newest[value["customer"], value["from"]] = value
            orders, cents = Counter(), Counter()
            for (customer, _), totals in newest.items():
                orders[customer] += totals["orders"]
                cents[customer] += totals["amount_cents"]
    finally:
        consumer.close()
    return {"orders": orders, "cents": cents}


def test_totals_are_right_to_the_record_and_a_signal_ends_it(
    kafka: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    _create(kafka, topic_name)
    now = epoch_ms()
    # Two windows, both inside the watermark's ten seconds.
    orders = [
        Order(f"{number}", f"c{number % 3}", number, now - (number % 2) * WINDOW_MS // 2)
        for number in range(1, 301)
    ]
    _send(kafka, topic_name, orders)
    query = _query(
        kafka, topic_name, tmp_path, _as_module(), "--max-offsets-per-trigger", "100",
        "--trigger-interval", "500 milliseconds",
    )  # fmt: skip
    query.start()
    try:
        _await_batches(query, tmp_path, 3)
        wanted = Counter(order.customer for order in orders)
        totals = _read_totals(kafka, f"{topic_name}-totals", wanted)
        query.send_signal(signal.SIGINT)
        assert query.wait(20), "it does not end"
    finally:
        query.kill()

    cents: Counter[str] = Counter()
    for order in orders:
        cents[order.customer] += order.amount_cents
    assert totals["cents"] == cents
    assert query.exit_code == 0, query.describe_end()
    assert "Traceback" not in query.log_path.read_text()


def test_under_spark_submit_it_uses_the_session_it_is_given(
    kafka: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    _create(kafka, topic_name)
    jars = ",".join(str(jar) for jar in spark_kafka_jars())
    program = [SPARK_SUBMIT, *SUBMIT_OPTIONS, "--master", "local[1]", "--jars", jars]
    program.append(str(Path(order_totals.__file__)))
    query = _query(kafka, topic_name, tmp_path, program)
    query.start()
    try:
        _send(kafka, topic_name, [Order("1", "c", 5, epoch_ms())])
        _await_batches(query, tmp_path, 1)
    finally:
        query.stop()
    assert "Traceback" not in query.log_path.read_text()


def test_a_query_that_fails_says_why_and_exits_1(
    kafka: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    _create(kafka, topic_name)
    query = _query(kafka, topic_name, tmp_path, _as_module())
    query.start()
    try:
        _send(kafka, topic_name, [Order("1", "c", 5, epoch_ms())])
        _await_batches(query, tmp_path, 1)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.delete_topics([topic_name])[topic_name].result(30)
        assert query.wait(120), "it goes on without its topic"
    finally:
        query.kill()
    assert query.exit_code == 1
    assert "STREAM_FAILED" in query.log_end(60) or topic_name in query.log_end(60)

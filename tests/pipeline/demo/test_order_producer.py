"""The producer on a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from sparklag_pipeline.broker.child_process import ChildProcess
from sparklag_pipeline.demo.record_stream import BUSIEST_CUSTOMER
from tests.local_kafka import LocalKafka
from tests.waiting import DEADLINE_S, wait_for


def _producer(kafka: LocalKafka, topic: str, tmp_path: Path) -> ChildProcess:
    command = [sys.executable, "-m", "sparklag_pipeline.demo.order_producer"]
    command += ["--bootstrap-servers", kafka.bootstrap_servers, "--topic", topic]
    return ChildProcess("the producer", command, log_path=tmp_path / "producer.log")


def _read(kafka: LocalKafka, topic: str, count: int) -> list[tuple[int, str, dict[str, object]]]:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: list[tuple[int, str, dict[str, object]]] = []
    try:
        while len(found) < count:
            message = consumer.poll(30)
            assert message is not None, f"only {len(found)} orders came"
            key, value, partition = message.key(), message.value(), message.partition()
            assert key is not None
            assert value is not None
            assert partition is not None
            found.append((partition, key.decode(), json.loads(value)))
    finally:
        consumer.close()
    return found


@pytest.mark.kafka
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_orders_are_where_the_partitioner_says_and_a_signal_ends_it_cleanly(
    kafka: LocalKafka, topic_name: str, tmp_path: Path, end: signal.Signals
) -> None:
    producer = _producer(kafka, topic_name, tmp_path)
    producer.start()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    try:
        wait_for(
            lambda: topic_name in admin.list_topics(timeout=30).topics or not producer.is_alive(),
            what="the topic",
        )
        assert producer.is_alive(), producer.describe_end()
        orders = _read(kafka, topic_name, 400)
        producer.send_signal(end)
        assert producer.wait(10)
    finally:
        producer.kill()

    assert producer.exit_code == 0, producer.describe_end()
    assert "0 failed" in producer.log_end(1)
    partitions: dict[str, set[int]] = {}
    for partition, key, order in orders:
        assert order["customer"] == key
        partitions.setdefault(key, set()).add(partition)
    assert partitions.pop(BUSIEST_CUSTOMER) == {0}
    assert all(len(used) == 1 and 0 not in used for used in partitions.values())


def test_a_broker_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sparklag_pipeline.demo.order_producer"),
            *("--bootstrap-servers", "127.0.0.1:1"),
        ],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "cannot use Kafka at 127.0.0.1:1: connection refused: is a broker listening there?"
    ]

"""The producer on a real broker."""

from __future__ import annotations

import json
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparklag_jobs.broker.child_process import ChildProcess
from sparklag_jobs.demo.streams import BUSIEST_CUSTOMER
from tests.child_processes import running
from tests.commands import run
from tests.second_client import SecondClient
from tests.waiting import DEADLINE_S, wait_until_up

PROGRAM = (sys.executable, "-m", "sparklag_jobs.demo.order_producer", "--bootstrap-servers")


@pytest.mark.kafka
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_orders_are_where_the_partitioner_reports_and_a_signal_ends_it_cleanly(
    second_client: SecondClient, topic_name: str, tmp_path: Path, end: signal.Signals
) -> None:
    command = [*PROGRAM, second_client.bootstrap_servers, "--topic", topic_name]
    producer = ChildProcess("the producer", command, log_path=tmp_path / "producer.log")
    with running(producer):
        ends = partial(second_client.end_offsets, topic_name)
        wait_until_up([producer], lambda: sum(ends().values()) >= 400, DEADLINE_S)
        producer.send_signal(end)
        assert producer.wait(10)
    assert producer.exit_code == 0, producer.describe_end()
    assert "0 failed" in producer.log_end(1)
    partitions: dict[Any, set[int | None]] = {}
    for message in second_client.read_all(topic_name):
        customer = json.loads(message.value() or b"")["customer"].encode()
        assert message.key() == customer
        partitions.setdefault(customer, set()).add(message.partition())
    assert partitions.pop(BUSIEST_CUSTOMER.encode()) == {0}
    assert all(len(used) == 1 and 0 not in used for used in partitions.values())


def test_a_broker_that_is_not_there_is_one_line() -> None:
    done = run(*PROGRAM, "127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "cannot use Kafka at 127.0.0.1:1: connection refused: is a broker listening there?"
    ]

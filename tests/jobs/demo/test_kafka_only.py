"""`sparklag demo --kafka-only`: a broker to try with, as a process."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from sparklag_jobs.broker.child_process import free_port
from sparklag_jobs.broker.local_kafka import HOST
from tests.jobs.demo.demo_process import END_TIMEOUT_S, Demo, running_demo
from tests.processes import ignored_signals, in_background
from tests.second_client import SecondClient

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for what is left in /proc"),
]


def _end(demo: Demo, number: signal.Signals = signal.SIGINT) -> None:
    demo.process.send_signal(number)
    assert demo.process.wait(END_TIMEOUT_S) == 0, demo.output
    demo.await_nothing_left()
    assert "Traceback" not in demo.output


def test_it_answers_where_it_reports_and_the_next_run_has_its_topics(tmp_path: Path) -> None:
    directory, port = tmp_path / "kept", free_port()
    with running_demo(directory, "--kafka-only", "--kafka-port", str(port)) as demo:
        demo.await_output(f"serve --bootstrap-servers {HOST}:{port}")
        SecondClient(f"{HOST}:{port}").create("tried", partitions=3)
        _end(demo)
    with running_demo(directory, "--kafka-only", "--seconds", "1") as again:
        assert again.process.wait(END_TIMEOUT_S * 3) == 0, again.output
        again.await_nothing_left()
    assert "Bootstrap servers: 127.0.0.1:" in again.output
    assert list((directory / "kafka" / "data").glob("tried-*"))


def test_a_background_job_ignores_ctrl_c_and_ends_at_sigterm(tmp_path: Path) -> None:
    with running_demo(tmp_path / "demo", "--kafka-only", started_by=in_background) as demo:
        demo.await_output("Bootstrap servers: ")
        assert {signal.SIGINT, signal.SIGHUP} <= ignored_signals(demo.process.pid)
        _end(demo, signal.SIGTERM)


@pytest.mark.slow
def test_a_broker_that_dies_is_named_with_its_logs_end(tmp_path: Path) -> None:
    with running_demo(tmp_path / "demo", "--kafka-only") as demo:
        demo.await_output("Bootstrap servers: ")
        os.kill(demo.await_process("kafka.Kafka"), signal.SIGKILL)
        assert demo.process.wait(END_TIMEOUT_S) == 1
        demo.await_nothing_left()
    assert "the demo failed: the Kafka broker was ended by SIGKILL" in demo.output


@pytest.mark.parametrize(
    ("port", "why"), [("{taken}", "is taken"), ("0", "expected a port"), ("x", "expected a port")]
)
def test_a_port_it_cannot_have_is_refused_in_a_line(tmp_path: Path, port: str, why: str) -> None:
    with socket.create_server((HOST, 0)) as server:
        port = port.format(taken=server.getsockname()[1])
        with running_demo(tmp_path / "demo", "--kafka-only", "--kafka-port", port) as demo:
            assert demo.process.wait(END_TIMEOUT_S) == 2
    last = demo.output.splitlines()[-1]
    assert "--kafka-port" in last
    assert why in last
    assert "Traceback" not in demo.output

"""The demo as a person runs it: as a process, in a terminal, and ended in every way."""

from __future__ import annotations

import os
import pty
import re
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from sparklag_jobs.broker.child_process import free_port
from sparklag_jobs.broker.local_kafka import HOST
from sparklag_jobs.demo.streams import QUERY_NAMES
from sparklag_schemas import LagEvent, decode_lag_event
from tests.commands import run
from tests.jobs.demo.demo_process import END_TIMEOUT_S, START_TIMEOUT_S, Demo, running_demo
from tests.processes import in_background, in_foreground
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for what is left in /proc"),
]


@pytest.mark.slow
def test_two_at_once_with_the_same_port_both_show_the_lag_and_end(tmp_path: Path) -> None:
    port = str(free_port())
    with running_demo(tmp_path / "one", "--seconds", "5", "--http-port", port) as one:
        with running_demo(tmp_path / "two", "--seconds", "5", "--http-port", port) as two:
            for demo in (one, two):
                demo.process.wait(START_TIMEOUT_S + 60)
    for demo in (one, two):
        assert demo.process.returncode == 0, demo.output
        for query in QUERY_NAMES:
            assert f"{query}: first lag after" in demo.output
        assert "by partition 0:" in demo.output
        assert "Next, a query of your own:" in demo.output
        demo.await_nothing_left()
    taken = [f"port {port} is taken" in demo.output for demo in (one, two)]
    assert sorted(taken) == [False, True]


def test_ctrl_c_ends_all_and_the_next_run_goes_on_until_it_is_killed(tmp_path: Path) -> None:
    directory, port = tmp_path / "demo", str(free_port())
    _ctrl_c_ends_it(directory, port)
    with running_demo(directory, "--http-port", port) as again:
        again.await_output("The page: http://")
        again.await_output("by partition 0:")
        url = f"http://{HOST}:{port}/lag"
        payments = _await_lag(f"{url}/payments", lambda lag: (lag.skew or 0) > 0.6)
        assert [part.partition for part in payments.topics[0].partitions] == [0, 1, 2, 3]
        failed = _await_lag(f"{url}/invoices", lambda lag: lag.status == "FAILED")
        assert re.search(r"invoice \S+ has the amount -\d+ cents", failed.reason or ""), failed
        restarted = _await_lag(
            f"{url}/invoices", lambda lag: lag.run_id != failed.run_id and lag.status == "OK"
        )
        assert restarted.query_id == failed.query_id
        assert _await_lag(f"{url}/orders", lambda lag: lag.total_lag is not None).status == "OK"
        assert "UNKNOWN" not in again.output
        assert len(again.processes()) >= 4, again.processes()
        again.process.kill()
        again.process.wait()
        again.await_nothing_left()


def _ctrl_c_ends_it(directory: Path, port: str) -> None:
    try:
        ours, theirs = pty.openpty()
    except OSError as error:
        pytest.fail(f"this machine gives out no pty, which a terminal needs: {error}")
    demo = Demo(directory, "--http-port", port, terminal=theirs)
    os.close(theirs)
    reader = ThreadPoolExecutor(1)
    output = reader.submit(_read_to_the_end, ours)
    try:
        demo.await_batches(4)
        os.write(ours, b"\x03")
        shown = output.result(END_TIMEOUT_S)
        assert demo.process.wait(END_TIMEOUT_S) == 0, shown
        demo.await_nothing_left()
        assert "Ctrl-C ends everything" in shown
        assert shown.index("soon at") < shown.index("The page ") < shown.index("orders: first lag")
        assert "Next, a query of your own:" in shown
        assert "Traceback" not in shown + demo.log("driver.log") + demo.log("service.log")
    finally:
        demo.process.kill()
        demo.process.wait()
        reader.shutdown()
        os.close(ours)


def _read_to_the_end(terminal: int) -> str:
    shown = b""
    while True:
        try:
            more = os.read(terminal, 65536)
        except OSError:  # the last process has closed it
            break
        if not more:
            break
        shown += more
    return shown.decode(errors="replace")


@pytest.mark.slow
def test_a_part_that_dies_is_named_with_its_logs_end(tmp_path: Path) -> None:
    with running_demo(tmp_path / "demo", "--http-port", str(free_port())) as demo:
        demo.await_output("Queries: Spark starts")
        os.kill(demo.await_process("sparklag_service"), signal.SIGKILL)
        assert demo.process.wait(END_TIMEOUT_S) == 1
        demo.await_nothing_left()
    assert "the demo failed: the service was ended by SIGKILL" in demo.output
    assert f"its files are in {tmp_path / 'demo'}" in demo.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "started_by"), [(signal.SIGTERM, in_background), (signal.SIGHUP, in_foreground)]
)
def test_a_signal_while_it_starts_ends_it_at_once(
    tmp_path: Path, number: signal.Signals, started_by: Callable[[list[str]], list[str]]
) -> None:
    with running_demo(tmp_path / "demo", started_by=started_by) as demo:
        demo.await_output("Kafka: one broker")
        demo.process.send_signal(number)
        assert demo.process.wait(END_TIMEOUT_S) == 0
        demo.await_nothing_left()
    assert "Traceback" not in demo.output


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    program = (sys.executable, "-m", "sparklag_jobs.demo.__main__")
    done = run(*program, "--keep", tmp_path / "file" / "x")
    assert done.returncode == 2
    assert done.stderr.startswith("cannot keep files in")
    assert done.stderr.count("\n") == 1


def _await_lag(url: str, condition: Callable[[LagEvent], bool]) -> LagEvent:
    results: list[LagEvent] = []

    def holds() -> bool:
        answer = httpx.get(url, timeout=END_TIMEOUT_S)
        if answer.is_success and condition(event := decode_lag_event(answer.content)):
            results.append(event)
        return bool(results)

    wait_for(holds, url, START_TIMEOUT_S)
    return results[0]

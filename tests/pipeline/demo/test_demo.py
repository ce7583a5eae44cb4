"""The demo as a person runs it: as a process, in a terminal, and ended in every way."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparklag_pipeline.broker.child_process import free_port
from sparklag_pipeline.broker.local_kafka import HOST
from tests.processes import process_is_gone
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for what is left in /proc"),
]

START_TIMEOUT_S = 300.0
END_TIMEOUT_S = 60.0
"""Ten where nothing else runs."""


class _Demo:
    def __init__(self, directory: Path, *more: str, terminal: int | None = None) -> None:
        self.directory = directory
        self.output_path = directory.parent / f"{directory.name}-{len(more)}-{time.time_ns()}.out"
        command = [
            sys.executable,
            "-m",
            "sparklag_pipeline.demo.__main__",
            "--keep",
            str(directory),
            *more,
        ]
        with self.output_path.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdin=terminal if terminal is not None else subprocess.DEVNULL,
                stdout=terminal if terminal is not None else output,
                stderr=subprocess.STDOUT,
                # In a terminal it must lead the session, for Ctrl-C to reach it.
                preexec_fn=None if terminal is None else _take_terminal,
                start_new_session=terminal is not None,
            )

    @property
    def output(self) -> str:
        return self.output_path.read_text(errors="replace")

    def log(self, name: str) -> str:
        path = self.directory / name
        return path.read_text(errors="replace") if path.exists() else ""

    def await_output(self, text: str) -> None:
        wait_for(
            lambda: text in self.output or self.process.poll() is not None,
            timeout_s=START_TIMEOUT_S,
            what=text,
        )
        assert text in self.output, self.output

    def await_batches(self, count: int) -> None:
        """Until that many batches are committed."""
        commits = self.directory / "checkpoint" / "commits"
        wait_for(
            lambda: len(list(commits.glob("[0-9]*"))) >= count or self.process.poll() is not None,
            timeout_s=START_TIMEOUT_S,
            what=f"{count} batches",
        )
        assert self.process.poll() is None, self.output

    def processes(self) -> dict[int, str]:
        """What runs for it, itself excepted: by its folder, which all of them have or name."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            pid = int(entry.name)
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                here = os.readlink(entry / "cwd")
            except OSError:
                continue
            named = str(self.directory) in command or here == str(self.directory)
            if named and pid not in (self.process.pid, os.getpid()) and not process_is_gone(pid):
                found[pid] = command
        return found

    def await_process(self, named: str) -> int:
        """The process whose command says `named`; a process in its exec says nothing yet."""
        found: list[int] = []

        def look() -> bool:
            found[:] = [pid for pid, command in self.processes().items() if named in command]
            return bool(found)

        wait_for(look, timeout_s=START_TIMEOUT_S, what=f"a process with {named}")
        return found[0]

    def await_nothing_left(self) -> None:
        wait_for(lambda: not self.processes(), timeout_s=END_TIMEOUT_S, what="nothing left")


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextmanager
def _demo(directory: Path, *more: str) -> Iterator[_Demo]:
    demo = _Demo(directory, *more)
    try:
        yield demo
    finally:
        demo.process.kill()
        demo.process.wait()


@pytest.mark.long_fault
def test_two_at_once_with_the_same_port_both_show_the_lag_and_end(tmp_path: Path) -> None:
    port = str(free_port())
    with _demo(tmp_path / "one", "--seconds", "5", "--http-port", port) as one:
        with _demo(tmp_path / "two", "--seconds", "5", "--http-port", port) as two:
            for demo in (one, two):
                demo.process.wait(START_TIMEOUT_S + 60)

    for demo in (one, two):
        assert demo.process.returncode == 0, demo.output
        assert "lag events of 'orders' read over REST" in demo.output
        assert "by partition 0:" in demo.output
        demo.await_nothing_left()
    taken = [f"port {port} is taken" in demo.output for demo in (one, two)]
    assert sorted(taken) == [False, True]


def test_ctrl_c_in_a_terminal_ends_all_and_the_next_run_goes_on_until_it_is_killed(
    tmp_path: Path,
) -> None:
    directory, port = tmp_path / "demo", str(free_port())
    _ctrl_c_ends_it(directory, port)
    with _demo(directory, "--http-port", port) as again:
        again.await_output("orders  OK")
        lag = json.loads(_get(f"http://{HOST}:{port}/lag/orders"))
        assert lag["query"] == "orders"
        assert {part["partition"] for part in lag["topics"][0]["partitions"]} == {0, 1, 2, 3}
        assert len(again.processes()) >= 4, again.processes()
        again.process.kill()
        again.process.wait()
        again.await_nothing_left()


def _ctrl_c_ends_it(directory: Path, port: str) -> None:
    try:
        ours, theirs = pty.openpty()
    except OSError as error:
        pytest.fail(f"this machine gives out no pty, which a terminal needs: {error}")
    demo = _Demo(directory, "--http-port", port, terminal=theirs)
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
        assert "Highest lag" in shown
        assert "Traceback" not in shown + demo.log("query.log") + demo.log("service.log")
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


def test_a_part_that_dies_is_named_with_its_logs_end(tmp_path: Path) -> None:
    with _demo(tmp_path / "demo", "--http-port", str(free_port())) as demo:
        demo.await_output("Query: Spark starts")
        os.kill(demo.await_process("sparklag_service"), signal.SIGKILL)
        assert demo.process.wait(END_TIMEOUT_S) == 1
        demo.await_nothing_left()
    assert "the demo failed: the service was ended by SIGKILL" in demo.output
    assert f"its files are in {tmp_path / 'demo'}" in demo.output


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.long_fault)]
)
def test_a_signal_while_it_starts_ends_it_at_once(tmp_path: Path, number: signal.Signals) -> None:
    with _demo(tmp_path / "demo") as demo:
        demo.await_output("Kafka: one broker")
        demo.process.send_signal(number)
        assert demo.process.wait(END_TIMEOUT_S) == 0
        demo.await_nothing_left()
    assert "Traceback" not in demo.output


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "sparklag_pipeline.demo.__main__",
            "--keep",
            str(tmp_path / "file" / "x"),
        ],
        capture_output=True,
        text=True,
        timeout=END_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("cannot keep files in")
    assert done.stderr.count("\n") == 1


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=END_TIMEOUT_S) as answer:
        return str(answer.read().decode())

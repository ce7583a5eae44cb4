"""Processes of ours end when they should, and with their owner."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from sparklag_jobs.broker.child_process import ChildProcess
from sparklag_jobs.errors import ProcessFailed
from tests.child_processes import freeze
from tests.processes import process_is_gone
from tests.scripts import running_script
from tests.waiting import DEADLINE_S, wait_for

DEAF = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('ready', flush=True); time.sleep(600)"
)
PARENT_OF_ONE = (
    "import subprocess, sys, time;"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
    "print(child.pid, flush=True); time.sleep(600)"
)


def _child(tmp_path: Path, program: str) -> ChildProcess:
    return ChildProcess("the child", [sys.executable, "-c", program], log_path=tmp_path / "log")


def _first_line(child: ChildProcess) -> str:
    wait_for(lambda: child.has_logged("\n"), "the child's first line")
    return child.log_path.read_text().splitlines()[0]


def test_one_that_does_not_listen_is_ended_after_the_deadline(tmp_path: Path) -> None:
    child = _child(tmp_path, DEAF)
    child.start()
    _first_line(child)
    before = time.monotonic()
    child.stop(timeout_s=0.5)
    assert time.monotonic() - before >= 0.5
    assert child.exit_code == -signal.SIGKILL
    child.stop()


def test_a_frozen_process_ends_at_sigterm(tmp_path: Path) -> None:
    child = _child(tmp_path, "print('ready', flush=True); import time; time.sleep(600)")
    child.start()
    _first_line(child)
    freeze(child)
    child.stop(timeout_s=DEADLINE_S)
    assert child.exit_code == -signal.SIGTERM


def test_what_it_started_ends_with_it(tmp_path: Path) -> None:
    child = _child(tmp_path, PARENT_OF_ONE)
    child.start()
    grandchild = int(_first_line(child))
    child.stop()
    wait_for(lambda: process_is_gone(grandchild), what="the grandchild's end")


def test_its_end_is_reported_with_the_logs_last_lines(tmp_path: Path) -> None:
    child = _child(tmp_path, "print('first', flush=True); raise SystemExit('it went wrong')")
    child.start()
    assert child.wait(DEADLINE_S)
    output = child.describe_end()
    assert output.startswith("the child ended with exit code 1")
    assert output.endswith("  it went wrong")


def test_a_command_that_is_not_there_is_reported(tmp_path: Path) -> None:
    child = ChildProcess("the child", ["/nothing/here"], log_path=tmp_path / "log")
    child.start()
    assert child.wait(DEADLINE_S)
    assert child.exit_code != 0
    assert "/nothing/here" in child.log_end() or "No such file" in child.log_end()
    with pytest.raises(ProcessFailed, match="does not start"):
        ChildProcess("x", ["true"], log_path=tmp_path / "no-folder" / "log").start()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ties a child to its parent there")
def test_it_dies_with_an_owner_that_is_killed(tmp_path: Path) -> None:
    owner_program = f"""
import sys, time
from pathlib import Path
from sparklag_jobs.broker.child_process import ChildProcess
child = ChildProcess("c", [sys.executable, "-c", {DEAF!r}], log_path=Path({str(tmp_path)!r}) / "l")
child.start()
print(child.pid, flush=True)
time.sleep(600)
"""
    with running_script(owner_program) as (_, pid):
        wait_for(lambda: "ready" in (tmp_path / "l").read_text(), "the child's deaf ear")
    wait_for(lambda: process_is_gone(int(pid)), "the child's end")

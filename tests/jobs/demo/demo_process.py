"""`sparklag demo` as a process, and what runs for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.end_to_end import Checkpoint
from tests.processes import process_is_gone
from tests.waiting import wait_for

START_TIMEOUT_S = 300.0
END_TIMEOUT_S = 60.0
"""Ten where nothing else runs."""


class Demo:
    """Its files are in `directory`; its output is a file beside that, or goes to `terminal`."""

    def __init__(
        self,
        directory: Path,
        *more: str,
        terminal: int | None = None,
        started_by: Callable[[list[str]], list[str]] = list,
    ) -> None:
        self.directory = directory
        self.output_path = directory.parent / f"{directory.name}-{len(more)}-{time.time_ns()}.out"
        command = [sys.executable, "-m", "sparklag_jobs.demo.__main__", "--keep", str(directory)]
        with self.output_path.open("wb") as output:
            self.process = subprocess.Popen(
                started_by([*command, *more]),
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
        self._await(lambda: text in self.output, text)
        assert text in self.output, self.output

    def await_batches(self, count: int) -> None:
        checkpoint = Checkpoint(self.directory / "checkpoints" / "orders")
        self._await(lambda: len(checkpoint.committed_batches()) >= count, f"{count} batches")
        assert self.process.poll() is None, self.output

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        is_over = self.process.poll
        wait_for(lambda: condition() or is_over() is not None, what, START_TIMEOUT_S)

    def processes(self) -> dict[int, str]:
        """What runs for it, itself excepted: by its folder, which all of them have or name."""
        result = {}
        for entry in Path("/proc").glob("[0-9]*"):
            pid = int(entry.name)
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                here = os.readlink(entry / "cwd")
            except OSError:
                continue
            named = str(self.directory) in command or here == str(self.directory)
            if named and pid not in (self.process.pid, os.getpid()) and not process_is_gone(pid):
                result[pid] = command
        return result

    def await_process(self, named: str) -> int:
        """The process whose command has `named`; a process in its exec has none yet."""
        result: list[int] = []

        def look() -> bool:
            result[:] = [pid for pid, command in self.processes().items() if named in command]
            return bool(result)

        wait_for(look, timeout_s=START_TIMEOUT_S, what=f"a process with {named}")
        return result[0]

    def await_nothing_left(self) -> None:
        wait_for(lambda: not self.processes(), timeout_s=END_TIMEOUT_S, what="nothing left")


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextmanager
def running_demo(directory: Path, *more: str, **options: Any) -> Iterator[Demo]:
    """Killed at the end of the block, where it still runs."""
    demo = Demo(directory, *more, **options)
    try:
        yield demo
    finally:
        demo.process.kill()
        demo.process.wait()

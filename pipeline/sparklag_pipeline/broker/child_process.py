"""A process of ours: its log in a file, its end bounded in time, and never left behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sparklag_pipeline.errors import ProcessFailed

STOP_TIMEOUT_S: Final = 8.0
_FRAME: Final = re.compile(r"\s+(at [\w.$/<>]+\(|\.\.\. \d+ more)")
_EXEC_WITH_PARENT: Final = Path(__file__).with_name("exec_with_parent.py")


class ChildProcess:
    """One process, started by `start` in a session of its own, its output appended to a log.

    In a session of its own, Ctrl-C in the terminal reaches only the owner, which then ends its
    children in the order that is right. On Linux the child dies with its owner, however that
    ends, if it was started from the main thread: the kernel ties a child to the *thread* that
    started it, so one that another thread starts is left to `stop`.

    `environment` is all of it; without, the owner's. It runs in `directory`, or the owner's.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log_path: Path,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        self.name = name
        self.log_path = log_path
        self._command = list(command)
        self._environment = environment
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._is_swept = False

    def start(self) -> None:
        """Start it. Raises ProcessFailed where that cannot be done."""
        if self.is_alive():
            raise ProcessFailed(f"{self.name} is running already")
        prefix: list[str] = []
        if threading.current_thread() is threading.main_thread():
            prefix = [sys.executable, "-I", "-S", str(_EXEC_WITH_PARENT), str(os.getpid())]
        try:
            with self.log_path.open("ab") as log:
                self._process = subprocess.Popen(
                    prefix + self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    cwd=self._directory,
                    start_new_session=True,
                )
            self._is_swept = False
        except OSError as error:
            raise ProcessFailed(f"{self.name} does not start: {error}") from error

    @property
    def pid(self) -> int:
        """Raises ProcessFailed where it was never started."""
        if self._process is None:
            raise ProcessFailed(f"{self.name} was not started")
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs and before it was started; -N where signal N ended it."""
        return None if self._process is None else self._process.poll()

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def send_signal(self, number: signal.Signals) -> None:
        """To it alone. Does nothing where it does not run."""
        if self._process is not None:
            self._process.send_signal(number)

    def freeze(self) -> None:
        """Hold it (SIGSTOP) until `thaw`: its connections stay open, and nothing is answered."""
        if self._process is None:
            return
        self.send_signal(signal.SIGSTOP)
        if hasattr(os, "waitid"):
            # Some of its threads go on for a moment.
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Let it go on."""
        self.send_signal(signal.SIGCONT)

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended within `timeout_s`."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ask it to end, after `timeout_s` make it. What it started ends with it. Idempotent."""
        if self._process is None or self._is_swept:
            return
        self.send_signal(signal.SIGTERM)
        self.thaw()  # a frozen process sees no SIGTERM
        if not self.wait(timeout_s):
            self.kill()
        self._kill_session()

    def kill(self) -> None:
        """End it, and what it started, at once (SIGKILL)."""
        if self._process is None or self._is_swept:
            return
        self._process.kill()
        self._kill_session()
        self._process.wait()

    def log_end(self, lines: int = 12) -> str:
        """The last lines of its log."""
        return log_end(self.log_path, lines)

    def describe_end(self) -> str:
        """How it ended, and the last lines of its log."""
        code = self.exit_code
        how = f"ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        return f"{self.name} {how}; the end of {self.log_path}:\n{self.log_end()}"

    def _kill_session(self) -> None:
        # What it started and left: a JVM, say. Once only: the group's number is free after that,
        # and may be another's by the next call.
        self._is_swept = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def stop_all(children: Sequence[ChildProcess], timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Stop them all at once: together they have `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    for child in children:
        child.send_signal(signal.SIGTERM)
    for child in children:
        child.stop(max(0.0, deadline - time.monotonic()))


def log_end(path: Path, lines: int = 12) -> str:
    """The last lines of a log, indented, without Java's stack frames, which hide the reason."""
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        return f"  ({error})"
    telling = [line for line in text.splitlines() if line.strip() and not _FRAME.match(line)]
    last = telling[-lines:]
    return "\n".join(f"  {line}" for line in last) or "  (empty)"

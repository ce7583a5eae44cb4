"""A child process with a log file, a bounded shutdown, and no orphans."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from sparklag_jobs.errors import ProcessFailed

STOP_TIMEOUT_S: Final = 8.0
_FRAME: Final = re.compile(r"\s+(at [\w.$/<>]+\(|\.\.\. \d+ more)")
_EXEC_WITH_PARENT: Final = Path(__file__).with_name("exec_with_parent.py")


class ChildProcess:
    """A process in its own session, with its output appended to a log.

    The session keeps Ctrl-C in the terminal from the child: only the owner gets it, and ends its
    children in order. On Linux a child started from the main thread dies with its owner, even if
    that is killed. The kernel ties a child to the *thread* that started it, so a child of another
    thread must be ended by `stop`.

    `environment` replaces the owner's. `directory`: the working directory; the default is the
    owner's.
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
        self._working_directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._is_swept = False

    def start(self) -> None:
        """Start the process. Raises ProcessFailed."""
        if self.is_alive():
            raise ProcessFailed(f"{self.name} is running already")
        prefix: list[str] = []
        if threading.current_thread() is threading.main_thread():
            prefix = [sys.executable, "-I", "-S", str(_EXEC_WITH_PARENT), str(os.getpid())]
        try:
            with self.log_path.open("ab") as log:
                self._log_start = log.tell()
                self._process = subprocess.Popen(
                    prefix + self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    cwd=self._working_directory,
                    start_new_session=True,
                )
            self._is_swept = False
        except OSError as error:
            raise ProcessFailed(f"{self.name} does not start: {error}") from error

    @property
    def pid(self) -> int:
        """The process id. Raises ProcessFailed before the first start."""
        if self._process is None:
            raise ProcessFailed(f"{self.name} was not started")
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while the process runs and before its start; -N after signal N."""
        return None if self._process is None else self._process.poll()

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to this process alone, if it runs."""
        if self._process is not None:
            self._process.send_signal(number)

    def wait(self, timeout_s: float) -> bool:
        """Returns whether the process ended within `timeout_s`."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        return not self.is_alive()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Send SIGTERM, and SIGKILL after `timeout_s`, also to the process's children.
        Idempotent."""
        if self._process is None or self._is_swept:
            return
        self.send_signal(signal.SIGTERM)
        self.send_signal(signal.SIGCONT)  # a stopped process receives no SIGTERM
        if not self.wait(timeout_s):
            self.kill()
        self._kill_session()

    def kill(self) -> None:
        """Send SIGKILL to the process and its children."""
        if self._process is None or self._is_swept:
            return
        self._process.kill()
        self._kill_session()
        self._process.wait()

    def has_logged(self, text: str) -> bool:
        """Returns whether the log contains `text` since the last start."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return text.encode() in log.read()

    def log_end(self, lines: int = 12) -> str:
        return log_end(self.log_path, lines)

    def describe_end(self) -> str:
        """The exit code or signal, and the last lines of the log."""
        code = self.exit_code
        how = f"ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        return f"{self.name} {how}; the end of {self.log_path}:\n{self.log_end()}"

    def _kill_session(self) -> None:
        # Ends remaining children, for example a JVM. Only once: afterwards the group's id is free
        # and may belong to another process.
        self._is_swept = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def stop_all(children: Sequence[ChildProcess], timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Stop all children in parallel, within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    for child in children:
        child.send_signal(signal.SIGTERM)
    for child in children:
        child.stop(max(0.0, deadline - time.monotonic()))


def log_end(path: Path, lines: int = 12) -> str:
    """The last lines of a log, indented, without Java's stack frames, which hide the cause."""
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        return f"  ({error})"
    shown = [line for line in text.splitlines() if line.strip() and not _FRAME.match(line)]
    return "\n".join(f"  {line}" for line in shown[-lines:]) or "  (empty)"


_RANGE: Final = range(20_000, 30_000)


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Distinct free ports. Raises OSError if there are too few."""
    ports = list(islice(filter(is_free, random.sample(_RANGE, 100 * count)), count))
    if len(ports) < count:
        raise OSError(f"of {_RANGE} too few are free")
    return ports


def is_free(port: int) -> bool:
    """Returns whether a server can listen on this loopback port now."""
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True

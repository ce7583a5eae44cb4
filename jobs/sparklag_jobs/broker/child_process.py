"""A child process: its log in a file, its end bounded in time, and never left behind."""

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
from pathlib import Path
from typing import Final

from sparklag_jobs.errors import ProcessFailed

STOP_TIMEOUT_S: Final = 8.0
_FRAME: Final = re.compile(r"\s+(at [\w.$/<>]+\(|\.\.\. \d+ more)")
_EXEC_WITH_PARENT: Final = Path(__file__).with_name("exec_with_parent.py")


class ChildProcess:
    """A process in a session of its own, its output appended to a log.

    Because of the session, Ctrl-C in the terminal reaches only the owner, which then ends its
    children in the right order. On Linux a child started from the main thread dies with its owner,
    even one that is killed. The kernel ties a child to the *thread* that started it, so a child of
    another thread must be ended by `stop`.

    `environment` replaces the owner's. `directory` is the working directory, or the owner's.
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
        """Raises ProcessFailed where it cannot be started."""
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
        """Raises ProcessFailed before the first start."""
        if self._process is None:
            raise ProcessFailed(f"{self.name} was not started")
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs and before the start; -N where signal N ended it."""
        return None if self._process is None else self._process.poll()

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def send_signal(self, number: signal.Signals) -> None:
        """To this process alone. Does nothing where it does not run."""
        if self._process is not None:
            self._process.send_signal(number)

    def wait(self, timeout_s: float) -> bool:
        """Returns whether it has ended within `timeout_s`."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """SIGTERM, and SIGKILL after `timeout_s`; its own children end with it. Idempotent."""
        if self._process is None or self._is_swept:
            return
        self.send_signal(signal.SIGTERM)
        self.send_signal(signal.SIGCONT)  # a frozen process sees no SIGTERM
        if not self.wait(timeout_s):
            self.kill()
        self._kill_session()

    def kill(self) -> None:
        """SIGKILL, to its own children too."""
        if self._process is None or self._is_swept:
            return
        self._process.kill()
        self._kill_session()
        self._process.wait()

    def has_logged(self, text: str) -> bool:
        """Since it was started."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return text.encode() in log.read()

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
        # Its own children that are left: a JVM, for example. Once only: after that the group's id
        # is free, and may be another's by the next call.
        self._is_swept = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def stop_all(children: Sequence[ChildProcess], timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Stop them in parallel, within `timeout_s` for all."""
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
    shown = [line for line in text.splitlines() if line.strip() and not _FRAME.match(line)]
    return "\n".join(f"  {line}" for line in shown[-lines:]) or "  (empty)"


_RANGE: Final = range(20_000, 30_000)


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different ones. Raises OSError where too few are free."""
    ports: list[int] = []
    for port in random.sample(_RANGE, 100 * count):
        if len(ports) < count and is_free(port):
            ports.append(port)
    if len(ports) < count:
        raise OSError(f"of {_RANGE} too few are free")
    return ports


def is_free(port: int) -> bool:
    """Returns whether a server can listen there now, on loopback."""
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True

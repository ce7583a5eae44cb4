"""A real Spark Connect server in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from tests.waiting import wait_for

START_S = 200.0
END_S = 120.0


class ConnectServer:
    """As long as it is open. Its JVM ends with it."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.listener.drivers.connect_server"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        self.port = 0

    def wait_until_ready(self) -> None:
        """It takes requests."""

        def told() -> bool:
            for line in list(self._lines):
                if line.startswith("port: "):
                    self.port = int(line.partition(": ")[2])
            return bool(self.port) or self._process.poll() is not None

        wait_for(told, "the Spark Connect server", START_S)
        assert self.port, "\n".join(self._lines)

    def close(self) -> None:
        """End it, whatever it does."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        # To the end of the pipe: its JVM holds that too.
        self._reading.join(END_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.append(line.rstrip())

"""A real Spark Connect server in a process of its own, and a way to it that can be interrupted."""

from __future__ import annotations

import socket
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


class Link:
    """Takes connections on `port` and passes them on to another, or not."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._flows = threading.Event()
        self._flows.set()
        self._whole = True
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break every connection, and those to come."""
        with self._lock:
            self._whole = False
            ends, self._ends = self._ends, set()
        for end in ends:
            _shut(end)

    def freeze(self) -> None:
        """Connections stay, and nothing comes through."""
        self._flows.clear()

    def mend(self) -> None:
        """As it was."""
        self._whole = True
        self._flows.set()

    def close(self) -> None:
        self.mend()
        _shut(self._listening)
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._to_port))
            except OSError:
                near.close()
                continue
            with self._lock:
                passes = self._whole
                if passes:
                    self._ends |= {near, far}
            if not passes:
                near.close()
                far.close()
                continue
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._flows.wait()
                target.sendall(data)
        for end in (source, target):
            _shut(end)
            with self._lock:
                self._ends.discard(end)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()

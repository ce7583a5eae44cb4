"""A real Spark Connect server in a process of its own, and a way to it that can be interrupted."""

from __future__ import annotations

import re
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

from sparklag_pipeline.broker.child_process import ChildProcess
from tests.waiting import wait_until_up

START_S = 200.0


class ConnectServer:
    """As long as it is open. Its JVM ends with it."""

    def __init__(self, log_path: Path) -> None:
        self._process = ChildProcess(
            "the Spark Connect server",
            [sys.executable, "-m", "tests.listener.drivers.connect_server"],
            log_path=log_path,
            directory=Path(__file__).parents[2],
        )

    @property
    def port(self) -> int:
        """0 until it takes requests."""
        found = re.search(r"^port: (\d+)$", self._process.log_path.read_text(), re.MULTILINE)
        return int(found[1]) if found else 0

    def __enter__(self) -> ConnectServer:
        self._process.start()
        try:
            wait_until_up([self._process], lambda: self.port > 0, START_S)
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()


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

"""Servers of other projects on ports of 127.0.0.1, in a folder that is gone with them."""

from __future__ import annotations

import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import httpx

from sparklag_jobs.broker.child_process import ChildProcess, free_port, stop_all
from sparklag_jobs.broker.maven import find_java
from tests.child_processes import Startable, freeze, thaw
from tests.waiting import wait_until_up

HOST: Final = "127.0.0.1"
JVM_OPTIONS: Final = ("-Xms64m", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_START_S: Final = 180.0


def java_command(jars: Sequence[Path], *arguments: str) -> list[str]:
    """With all the jars of the folder of the first one. `arguments`: from the main class on."""
    return [str(find_java()), *JVM_OPTIONS, "-cp", f"{jars[0].parent}/*", *arguments]


class LocalCluster(Startable):
    """`name` and `_answers` are the subclass's, which calls `_start_node` and `_await_answer`."""

    name: str

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=f"sparklag-{self.name}-"))
        self._nodes: list[ChildProcess] = []

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it can be used. May fail as a request to a server that is away does."""

    def _start_node(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        log_path = self._folder / f"{name}.log"
        node = ChildProcess(
            name, command, log_path=log_path, environment=environment, directory=self._folder
        )
        self._nodes.append(node)
        node.start()

    def _await_answer(self) -> None:
        def is_up() -> bool:
            try:
                return self._answers()
            except (OSError, ValueError, httpx.HTTPError):
                return False

        wait_until_up(self._nodes, is_up, _START_S)

    def freeze(self) -> None:
        for node in self._nodes:
            freeze(node)

    def thaw(self) -> None:
        for node in self._nodes:
            thaw(node)

    def stop(self) -> None:
        stop_all(self._nodes)
        self._nodes.clear()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


class LocalServer(LocalCluster):
    """A cluster of one node with one port, which `start` takes again after `stop`."""

    def __init__(self) -> None:
        super().__init__()
        self._port = free_port()

    @abstractmethod
    def _command(self) -> Sequence[str]: ...

    def start(self) -> None:
        self._start_node(self.name, self._command())
        self._await_answer()

"""A server of one process for tests, which can be used once it answers."""

from __future__ import annotations

import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sparklag_pipeline.broker.child_process import ChildProcess, free_port
from tests.child_processes import Startable, freeze, thaw
from tests.waiting import wait_until_up

_START_S: Final = 180.0


class AnsweringServer(Startable):
    """On one port of 127.0.0.1, in a folder of its own that is gone with it."""

    name: str

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=f"sparklag-{self.name}-"))
        self._port = free_port()
        self._process: ChildProcess | None = None

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """What runs it."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it can be used."""

    def start(self) -> None:
        self._process = ChildProcess(
            self.name, self._command(), log_path=self._folder / f"{self.name}.log"
        )
        self._process.start()
        wait_until_up([self._process], self._answers, _START_S)

    def stop(self) -> None:
        """End it; `start` takes the same address."""
        if self._process is not None:
            self._process.stop()

    def freeze(self) -> None:
        """Hold it: connections stay open, and nothing is answered until `thaw`."""
        assert self._process is not None
        freeze(self._process)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        thaw(self._process)

    def close(self) -> None:
        """Idempotent."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

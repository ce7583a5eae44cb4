"""A real Spark Connect server in a process of its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparklag_jobs.broker.child_process import ChildProcess
from tests.waiting import wait_until_up

START_S = 200.0


class ConnectServer:
    def __init__(
        self,
        log_path: Path,
        python: Path = Path(sys.executable),
        environment: Mapping[str, str] | None = None,
        properties: Sequence[str] = (),
    ) -> None:
        self.log_path = log_path
        self._process = ChildProcess(
            "the Spark Connect server",
            [str(python), "-m", "tests.listener.drivers.connect_server", *properties],
            log_path=log_path,
            environment=environment,
            directory=Path(__file__).parents[2],
        )

    @property
    def port(self) -> int:
        """0 until it takes requests."""
        result = re.search(r"^port: (\d+)$", self.log_path.read_text(), re.MULTILINE)
        return int(result[1]) if result else 0

    @property
    def sessions(self) -> int:
        return int(re.findall(r"^sessions: (\d+)$", self.log_path.read_text(), re.M)[-1])

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

"""A lane's driver as a process, which receives commands line by line."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.lanes.lanes import ROOT, Lane

ANSWER_S = 240.0
"""Spark's own start, or a first batch, on a busy machine."""
_END_S = 120.0
_ANSWER = "done: "


class LaneProcess:
    def __init__(self, lane: Lane, servers: str, topic: str, offsets: str, folder: Path) -> None:
        self.lines: list[str] = []
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._process = subprocess.Popen(
            [lane.python(), "-m", "tests.lanes.driver", servers, topic, offsets, str(folder)],
            cwd=ROOT,
            env=lane.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        # To the end of the pipe: its JVM holds that too.
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith(_ANSWER):
                    self._answers.put(line[len(_ANSWER) :])
                else:
                    self.lines.append(line.rstrip())
        self._answers.put(None)

    def started(self) -> None:
        self._answer("start")

    def do(self, *command: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(command) + "\n")
        self._process.stdin.flush()
        return self._answer(command[0])

    def ends(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(_END_S)
        self._reading.join(_END_S)
        assert not self._reading.is_alive(), "its JVM goes on"
        return code

    def output(self) -> str:
        return "\n".join(self.lines)

    def _answer(self, command: str) -> Any:
        try:
            answer = self._answers.get(timeout=ANSWER_S)
        except queue.Empty:
            answer = None
        assert answer is not None, f"no answer to {command}:\n{self.output()}"
        return json.loads(answer)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        deadline = time.monotonic() + _END_S
        self._reading.join(max(0.0, deadline - time.monotonic()))
        if self._process.stdin is not None:
            self._process.stdin.close()


@contextmanager
def running(
    lane: Lane, servers: str, topic: str, offsets: str, folder: Path
) -> Iterator[LaneProcess]:
    process = LaneProcess(lane, servers, topic, offsets, folder)
    try:
        process.started()
        yield process
    finally:
        process.kill()

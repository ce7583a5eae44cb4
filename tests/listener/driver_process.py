"""A driver in a process of its own, with what it says and what it published."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from sparklag_schemas import Observation
from tests import samples
from tests.listener.offsets_topic import OffsetsTopic
from tests.second_client import SecondClient
from tests.waiting import wait_for

START_S = 200.0
"""Spark's own start, on a busy machine."""
END_S = 120.0
"""From the last thing the driver does to its end, the JVM's included."""

OUR_NOISE = (
    "was destroyed but it is pending",
    "never awaited",
    "never retrieved",
    "Exception ignored",
    "sparklag: ",
    "Logging error",
)


class DriverProcess:
    """`drivers/ending.py` with what it says, until it has ended or the test has."""

    def __init__(
        self,
        client: SecondClient,
        action: str,
        folder: Path,
        servers: str | None = None,
        interpreter: Sequence[str] = (),
        offsets_topic: str | None = None,
    ) -> None:
        """`interpreter`: options of Python; its input is at its end."""
        self.topic = client.create(f"{folder.name.replace('_', '-')}-orders", 2)
        client.produce(self.topic, [b"%d" % number for number in range(20)])
        self.published = OffsetsTopic(client, offsets_topic or f"{self.topic}-offsets")
        self.checkpoint = folder / "checkpoint"
        self.lines: list[str] = []
        arguments = [action, servers or client.bootstrap_servers, self.topic]
        self._process = subprocess.Popen(
            [sys.executable, *interpreter, "-m", "tests.listener.drivers.ending", *arguments,
             self.published.name, str(self.checkpoint), client.bootstrap_servers],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )  # fmt: skip
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        # To the end of the pipe: its JVM holds that too.
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.lines.append(line.rstrip())

    def prints(self, line: str) -> None:
        """Wait until it has printed this."""
        wait_for(
            lambda: line in self.lines or self._process.poll() is not None, line, timeout_s=START_S
        )
        assert line in self.lines, self.output()

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ends(self) -> int:
        """Its exit code; fails where it takes long."""
        began = time.monotonic()
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it goes on after {time.monotonic() - began:.0f} s:\n{self.output()}")
        self._reading.join(END_S)
        assert not self._reading.is_alive(), "its JVM goes on"
        return code

    def output(self) -> str:
        return "\n".join(self.lines)

    def noise(self) -> list[str]:
        """What of ours disturbs the driver's log. On a busy machine Spark's listener bus may take
        longer than its patience: that is said, and is so."""
        return [
            line
            for line in self.lines
            if "recovered by polling" not in line and any(noise in line for noise in OUR_NOISE)
        ]

    @property
    def query_id(self) -> str:
        """Of its only query."""
        return (self.checkpoint / "metadata").read_text().split('"')[3]

    def last(self) -> Observation:
        """The newest observation of its only query, which stands where the checkpoint says."""
        observation = self.published.observations(self.query_id)[-1]
        (source,) = observation.sources
        (saved,) = samples.committed_offsets(self.checkpoint)
        assert source.processed == {
            self.topic: {int(number): end for number, end in saved[self.topic].items()}
        }
        assert sum(source.processed[self.topic].values()) == 20
        return observation

    def __enter__(self) -> DriverProcess:
        return self

    def __exit__(self, *_: object) -> None:
        """End it, if the test has not."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._reading.join(END_S)

"""However a driver ends, it ends soon, as it would have, and its last position is on the topic."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparklag_schemas import Observation
from tests import samples
from tests.listener.offsets_topic import OffsetsTopic
from tests.second_client import SecondClient
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

START_S = 200.0
"""Spark's own start, on a busy machine."""
END_S = 30.0
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
    """A driver of `ending.py`, with what it says."""

    def __init__(
        self, client: SecondClient, ending: str, folder: Path, servers: str | None = None
    ) -> None:
        self.topic = client.create(f"{folder.name.replace('_', '-')}-orders", 2)
        client.produce(self.topic, [b"%d" % number for number in range(20)])
        self.published = OffsetsTopic(client, f"{self.topic}-offsets")
        self.checkpoint = folder / "checkpoint"
        self.lines: list[str] = []
        arguments = [ending, servers or client.bootstrap_servers, self.topic]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.listener.drivers.ending", *arguments,
             self.published.name, str(self.checkpoint), client.bootstrap_servers],
            cwd=Path(__file__).parents[2],
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

    def says(self, line: str) -> None:
        """Wait until it has said this."""
        wait_for(
            lambda: line in self.lines or self._process.poll() is not None, line, timeout_s=START_S
        )
        assert line in self.lines, self.output()

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

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

    def made_no_noise(self) -> None:
        """Whether nothing of ours disturbs the driver's log."""
        for noise in OUR_NOISE:
            assert noise not in self.output(), self.output()

    def last(self) -> Observation:
        """The newest observation of its only query, which stands where the checkpoint says."""
        query_id = (self.checkpoint / "metadata").read_text().split('"')[3]
        observation = self.published.observations(query_id)[-1]
        (source,) = observation.sources
        (saved,) = samples.committed_offsets(self.checkpoint)
        assert source.processed == {
            self.topic: {int(number): end for number, end in saved[self.topic].items()}
        }
        assert sum(source.processed[self.topic].values()) == 20
        return observation

    def kill(self) -> None:
        """End it, if the test has not."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._reading.join(END_S)


@contextmanager
def driver(
    client: SecondClient, ending: str, folder: Path, servers: str | None = None
) -> Iterator[DriverProcess]:
    process = DriverProcess(client, ending, folder, servers)
    try:
        yield process
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("ending", "exit_code", "causes"),
    [
        ("returns", 0, {"progress", "idle"}),
        ("stops_spark_and_exits_with_3", 3, {"progress", "idle", "terminated"}),
        ("stops_spark_then_closes", 0, {"progress", "idle", "terminated"}),
        # The last events are on their way to the listener when the driver ends.
        ("returns_where_no_thread_can_be_started_any_more", 0, {"terminated"}),
    ],
)
def test_it_ends_by_itself(
    second_client: SecondClient, ending: str, exit_code: int, causes: set[str], tmp_path: Path
) -> None:
    with driver(second_client, ending, tmp_path) as process:
        process.says("read all")
        assert process.ends() == exit_code, process.output()
        assert process.last().cause in causes
        process.made_no_noise()


def test_it_ends_by_an_exception(second_client: SecondClient, tmp_path: Path) -> None:
    with driver(second_client, "raises", tmp_path) as process:
        process.says("read all")
        assert process.ends() == 1
        assert process.lines[-1] == "ValueError: the driver failed"
        process.last()
        process.made_no_noise()


def test_it_ends_by_sigterm(second_client: SecondClient, tmp_path: Path) -> None:
    with driver(second_client, "waits_for_sigterm", tmp_path) as process:
        process.says("read all")
        process.terminate()
        assert process.ends() == -signal.SIGTERM
        process.last()
        process.made_no_noise()


def test_it_ends_by_a_sigterm_handler_of_its_own(
    second_client: SecondClient, tmp_path: Path
) -> None:
    ending = "waits_for_sigterm_with_a_handler_of_its_own"
    with driver(second_client, ending, tmp_path) as process:
        process.says("read all")
        process.terminate()
        assert process.ends() == 0, process.output()
        process.last()


def test_its_forks_end_as_they_would_and_it_goes_on(
    second_client: SecondClient, tmp_path: Path
) -> None:
    with driver(second_client, "forks", tmp_path) as process:
        process.says("read all")
        assert process.ends() == 0, process.output()
        assert "child returned: 0" in process.lines
        assert f"child was terminated: {-signal.SIGTERM}" in process.lines
        process.last()
        process.made_no_noise()


def test_where_kafka_is_away_it_ends_all_the_same_and_says_what_is_lost(
    second_client: SecondClient, tmp_path: Path
) -> None:
    with driver(second_client, "returns", tmp_path, servers="127.0.0.1:9") as process:
        process.says("read all")
        assert process.ends() == 0, process.output()
        ours = [line for line in process.lines if "sparklag: " in line]
        assert len(ours) == 2, process.output()
        assert "cannot publish" in ours[0]
        assert "connection refused" in ours[0]
        assert "not published" in ours[1]
        assert "was destroyed" not in process.output()

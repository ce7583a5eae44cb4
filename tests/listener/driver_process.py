"""A driver in a process of its own, with what it prints and what it published."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sparklag_jobs.broker.child_process import ChildProcess
from sparklag_jobs.broker.maven import spark_kafka_jars
from sparklag_schemas import Observation
from tests import samples
from tests.listener.offsets_topic import OffsetsTopic
from tests.processes import session_members
from tests.second_client import SecondClient
from tests.waiting import wait_for

START_S = 200.0
"""Spark's own start, on a busy machine."""
END_S = 120.0
"""The time from the driver's last action to its end and its JVM's."""

OUR_NOISE = (
    "was destroyed but it is pending",
    "never awaited",
    "never retrieved",
    "Exception ignored",
    "sparklag: ",
    "Logging error",
)


_ROOT: Final = Path(__file__).parents[2]
PYTHON: Final = (sys.executable, "-m", "tests.listener.drivers.ending")
PROMPT: Final = (sys.executable, "-i", *PYTHON[1:])
WITHOUT_UNIX: Final = (
    *(sys.executable, "-c"),
    "import runpy, sparklag_jobs.broker.maven, tests.platforms.without_unix\n"  # first: it locks
    f"runpy.run_module({PYTHON[-1]!r}, run_name='__main__', alter_sys=True)",
)


def spark_submit() -> tuple[str, ...]:
    """`spark-submit`, whose JVM is the parent of the driver."""
    program = Path(sys.executable).with_name("spark-submit")
    jars = ",".join(map(str, spark_kafka_jars()))
    return str(program), "--jars", jars, str(_ROOT / "tests/listener/drivers/ending.py")


class DriverProcess:
    """`drivers/ending.py`, killed with its JVM in the end."""

    def __init__(
        self,
        client: SecondClient,
        action: str,
        folder: Path,
        servers: str | None = None,
        program: Sequence[str] = PYTHON,
        offsets_topic: str | None = None,
    ) -> None:
        """`program`: what runs the driver; its input is at its end."""
        self.topic = client.create(f"orders-{uuid.uuid4().hex[:8]}", 2)
        client.produce(self.topic, [b"%d" % number for number in range(20)])
        self.published = OffsetsTopic(client, offsets_topic or f"{self.topic}-offsets")
        self.checkpoint = folder / "checkpoint"
        self._process = ChildProcess(
            f"the driver that {action}",
            [
                *program,
                *(action, servers or client.bootstrap_servers, self.topic),
                *(self.published.name, str(self.checkpoint), client.bootstrap_servers),
            ],
            log_path=folder / "driver.log",
            environment={**os.environ, "PYTHONPATH": str(_ROOT), "PYSPARK_PYTHON": sys.executable},
            directory=_ROOT,
        )

    def __enter__(self) -> DriverProcess:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    def prints(self, line: str) -> None:
        wait_for(lambda: line in self.lines or not self._process.is_alive(), line, START_S)
        assert line in self.lines, self.output()

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ends(self) -> int | None:
        """The exit code, once its JVM has ended too."""
        assert self._process.wait(END_S), f"it goes on:\n{self.output()}"
        wait_for(lambda: not session_members(self._process.pid), "its JVM ends", END_S)
        return self._process.exit_code

    @property
    def lines(self) -> list[str]:
        return self.output().splitlines()

    def output(self) -> str:
        return self._process.log_path.read_text(errors="replace")

    def noise(self) -> list[str]:
        """Our lines in the driver's log, without the first and those of a busy machine."""
        expected = ("sparklag: observing ", "recovered by polling", "no answer within")
        return [
            line
            for line in self.lines
            if any(noise in line for noise in OUR_NOISE)
            and not any(text in line for text in expected)
        ]

    @property
    def query_id(self) -> str:
        return (self.checkpoint / "metadata").read_text().split('"')[3]

    def last(self) -> Observation:
        """The newest observation of its only query, whose position is the checkpoint's."""
        observation = self.published.observations(self.query_id)[-1]
        (source,) = observation.sources
        (saved,) = samples.committed_offsets(self.checkpoint)
        assert source.processed == {
            self.topic: {int(number): end for number, end in saved[self.topic].items()}
        }
        assert sum(source.processed[self.topic].values()) == 20
        return observation

"""`job.py` as a process, and what sparklag published of it."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sparklag_pipeline.broker.child_process import ChildProcess
from sparklag_schemas import Observation
from tests.listener.offsets_topic import OffsetsTopic
from tests.second_client import SecondClient

RECORDS: Final = 20
_END_S: Final = 400.0
SPARKLAG_RUN: Final = str(Path(sys.executable).with_name("sparklag-run"))
_JOB: Final = Path(__file__).with_name("job.py")


class SubmittedJob:
    """Run to its end by `command`, which is given the job's file and arguments."""

    def __init__(self, client: SecondClient, topic: str, folder: Path) -> None:
        self.published = OffsetsTopic(client, f"{topic}-offsets")
        self.settings = {
            "bootstrap_servers": client.bootstrap_servers,
            "offsets_topic": self.published.name,
            "topic_partitions": "1",
        }
        client.produce(client.create(topic, 2), [b"%d" % number for number in range(RECORDS)])
        self._arguments = [client.bootstrap_servers, topic, str(folder / "checkpoint")]
        self._folder = folder

    @property
    def variables(self) -> dict[str, str]:
        """The settings in the environment."""
        return {f"SPARKLAG_{name.upper()}": value for name, value in self.settings.items()}

    @property
    def properties(self) -> list[str]:
        """The settings in Spark's configuration."""
        return [
            f"--conf=spark.sparklag.{re.sub(r'_(.)', lambda m: m[1].upper(), name)}={value}"
            for name, value in self.settings.items()
        ]

    def run(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
        """What it logs."""
        process = ChildProcess(
            "the job",
            [*command, str(_JOB), *self._arguments],
            log_path=self._folder / "log",
            environment={**os.environ, **(environment or {})},
            directory=self._folder,
        )
        process.start()
        try:
            assert process.wait(_END_S), f"it does not end: {process.log_end()}"
            assert process.exit_code == 0, process.describe_end()
        finally:
            process.kill()
        return process.log_path.read_text(errors="replace")

    def observations(self) -> list[Observation]:
        """What was published of its query."""
        metadata = json.loads((self._folder / "checkpoint" / "metadata").read_text())
        return self.published.observations(metadata["id"])


def assert_observed(job: SubmittedJob, origin: str) -> None:
    """The whole life of the query was published."""
    observations = job.observations()
    causes = [each.cause for each in observations]
    # Other reports may lie between; under Connect the start has no source that could be reported.
    assert causes.count("progress") == 1, causes
    assert causes[-1] == "terminated", causes
    read = observations[causes.index("progress")]
    (ends,) = (read.sources[0].processed or {}).values()
    assert sum(ends.values()) == RECORDS
    assert (read.query, read.origin) == ("counts", origin)

"""`job.py`, started by a command of the documents, and what sparklag published of it."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark

from sparklag_jobs.broker.child_process import ChildProcess
from sparklag_jobs.broker.maven import spark_kafka_jars
from sparklag_schemas import Observation
from tests.child_processes import run_to_end
from tests.document_blocks import command_in
from tests.listener.offsets_topic import OffsetsTopic
from tests.second_client import SecondClient
from tests.spark_configuration import PROPERTIES

RECORDS: Final = 20
_PAGE: Final = "docs/user/platforms.md"
_END_S: Final = 400.0
_JOB: Final = Path(__file__).with_name("job.py")


class SubmittedJob:
    def __init__(self, client: SecondClient, topic: str, folder: Path) -> None:
        self.published = OffsetsTopic(client, f"{topic}-offsets")
        client.produce(client.create(topic, 2), [b"%d" % number for number in range(RECORDS)])
        self._servers = client.bootstrap_servers
        job = [str(_JOB), self._servers, topic, str(folder / "checkpoint")]
        self._places = {"job.py": shlex.join(job), "broker:9092": self._servers}
        self._folder = folder

    def run(
        self,
        text: str,
        places: Mapping[str, str] | None = None,
        configuration: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """Run the command of the page that contains `text`; what it logs.

        `places`: replacements of the places that it names. `configuration`: of Spark, for what this
        machine needs; there is the name of the test's own topic too.
        """
        command = command_in(_PAGE, text)
        for name, here in {**self._places, **(places or {})}.items():
            command = command.replace(name, here)
        process = ChildProcess(
            "the job",
            ["bash", "-c", command],
            log_path=self._folder / "log",
            environment={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "PYSPARK_PYTHON": sys.executable,
                # Spark's scripts do not find it in a path with a space.
                "SPARK_HOME": str(Path(pyspark.__file__).parent),
                "SPARK_CONF_DIR": str(self._configured(configuration or {})),
                "PYSPARK_SUBMIT_ARGS": "pyspark-shell",
                # A client of Spark Connect reads no configuration of Spark's.
                "SPARKLAG_OFFSETS_TOPIC": self.published.name,
                **(environment or {}),
            },
            directory=self._folder,
        )
        return run_to_end(process, _END_S)

    def observations(self) -> list[Observation]:
        metadata = json.loads((self._folder / "checkpoint" / "metadata").read_text())
        return self.published.observations(metadata["id"])

    def _configured(self, configuration: Mapping[str, str]) -> Path:
        folder = self._folder / "conf"
        folder.mkdir()
        properties = {
            "spark.jars": ",".join(map(str, spark_kafka_jars())),
            "spark.sparklag.offsetsTopic": self.published.name,
            "spark.sparklag.topicPartitions": "1",
            **configuration,
        }
        lines = "".join(f"{name} {value}\n" for name, value in properties.items())
        (folder / PROPERTIES.name).write_text(PROPERTIES.read_text() + lines)
        return folder


def assert_observed(job: SubmittedJob, origin: str) -> None:
    observations = job.observations()
    causes = [each.cause for each in observations]
    # Other reports may lie between; under Connect the start has no source that could be reported.
    assert causes.count("progress") == 1, causes
    assert causes[-1] == "terminated", causes
    read = observations[causes.index("progress")]
    (ends,) = (read.sources[0].processed or {}).values()
    assert sum(ends.values()) == RECORDS
    assert (read.query, read.origin) == ("counts", origin)

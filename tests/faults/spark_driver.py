"""A real Spark driver with one query, as a process of its own; and its checkpoint.

`python -m tests.faults.spark_driver` with a JSON object of `Query`'s fields as its argument.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from sparklag_jobs.broker.child_process import ChildProcess
from tests.faults.history import Observed, QueryHistory
from tests.spark_configuration import pyspark_environment
from tests.waiting import wait_for

START_S: Final = 240.0
"""Spark's own start, on a busy machine."""


@dataclass(frozen=True)
class Query:
    read_from: str
    topic: str
    checkpoint: str
    publish_to: str
    offsets_topic: str
    topic_partitions: int
    heartbeat_s: float
    batch_s: float = 0.0
    """How long each batch takes."""
    slow_listener_s: float = 0.0
    """How long another listener in the driver takes for each event; 0: there is none."""


class Checkpoint:
    """What Spark itself wrote of one query of one topic, read without any code of ours."""

    def __init__(self, folder: Path, topic: str) -> None:
        self.folder = folder
        self._topic = topic

    def query_id(self) -> str:
        """Raises FileNotFoundError before the query has started."""
        return str(json.loads((self.folder / "metadata").read_text())["id"])

    def committed(self) -> list[int]:
        commits = self.folder / "commits"
        files = commits.iterdir() if commits.is_dir() else ()
        return sorted(int(file.name) for file in files if file.name.isdigit())

    def history(self) -> QueryHistory:
        """The ends of all committed batches, and when they were committed."""
        history = QueryHistory(self.query_id())
        for batch in self.committed():
            source = (self.folder / "offsets" / str(batch)).read_text().splitlines()[2]
            ends = {int(number): end for number, end in json.loads(source)[self._topic].items()}
            committed_s = (self.folder / "commits" / str(batch)).stat().st_mtime
            history.observed.append(
                # No event carries this time: what counts is that the query had this position.
                Observed(history.query_id, -1, {self._topic: ends}, {self._topic: 0}, committed_s)
            )
        return history


class SparkDriver:
    def __init__(
        self, query: Query, folder: Path, configuration: Mapping[str, str] | None = None
    ) -> None:
        options = [f"--conf={name}={value}" for name, value in (configuration or {}).items()]
        self._log_path = folder / "driver.log"
        self._process = ChildProcess(
            "the driver",
            [sys.executable, "-m", "tests.faults.spark_driver", json.dumps(asdict(query))],
            log_path=self._log_path,
            environment={
                **{k: v for k, v in os.environ.items() if not k.startswith("SPARKLAG_")},
                **pyspark_environment(*options),
            },
            directory=Path(__file__).parents[2],
        )
        self._log_start = 0

    def __enter__(self) -> SparkDriver:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._process.kill()
        if kind is not None:
            sys.stderr.write(f"the end of {self._log_path}:\n{self._process.log_end(40)}")

    def start(self) -> None:
        self._log_start = self._log_path.stat().st_size if self._log_path.exists() else 0
        self._process.start()

    def kill(self) -> None:
        self._process.kill()

    def log(self) -> str:
        with self._log_path.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode(errors="replace")

    def reports(self, text: str, timeout_s: float = START_S) -> None:
        def is_printed() -> bool:
            assert self._process.is_alive(), self._process.describe_end()
            return text in self.log()

        wait_for(is_printed, f"the driver prints {text!r}", timeout_s)


def main() -> None:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    from sparklag_listener import observe
    from tests.listener.drivers import build_session, read_kafka, tell

    query = Query(**json.loads(sys.argv[1]))

    class SlowListener(StreamingQueryListener):
        """Somebody else's, which holds up the listener bus for everybody."""

        def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's name
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802  # Spark's name
            time.sleep(query.slow_listener_s)

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802  # Spark's name
            time.sleep(query.slow_listener_s)

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  # Spark's name
            pass

    def take(batch: Any, number: int) -> None:
        tell(f"batch {number} began")
        batch.write.format("noop").mode("append").save()
        time.sleep(query.batch_s)
        tell(f"batch {number} done")

    spark = build_session()
    # The checkpoint is the truth of this test: all of it.
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "100000")
    if query.slow_listener_s:
        spark.streams.addListener(SlowListener())
    observe(
        spark,
        query.publish_to,
        offsets_topic=query.offsets_topic,
        topic_partitions=query.topic_partitions,
        heartbeat_s=query.heartbeat_s,
    )
    started = (
        read_kafka(spark, query.read_from, subscribe=query.topic)
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", query.checkpoint)
        .queryName("orders")
        .trigger(processingTime="300 milliseconds")
        .start()
    )
    started.awaitTermination()


if __name__ == "__main__":
    main()

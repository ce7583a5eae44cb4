"""A driver that runs the commands it receives, on the Spark that is installed where it runs.

`python -m tests.lanes.driver SERVERS TOPIC OFFSETS_TOPIC FOLDER`: reads commands from its standard
input, one a line, and answers each with a line `done: ` and JSON. Needs a driver's packages only.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparklag_auto import hook
from sparklag_listener import ObserverHandle, observe, starting_offsets
from sparklag_listener.classic.listener import Py4jListener, text_listener
from sparklag_listener.classic.running_batch import observe_batch
from sparklag_listener.observe import Method, newest_handle
from sparklag_schemas import Observation
from tests.lanes.connector import connector_jars
from tests.listener.drivers import build_session, read_kafka, start_query, tell

HEARTBEAT_S = 1.0
_CONFIGURATION = {"spark.master": "local[4]"}
"""A continuous query holds a core for each of its partitions, one in real-time mode too."""


class LaneDriver:
    """One session, observed. A method without an underscore is a command; its answer is JSON."""

    def __init__(self, servers: str, topic: str, offsets_topic: str, folder: str) -> None:
        self._servers, self._topic, self._folder = servers, topic, Path(folder)
        hook.install()
        is_client = "SPARK_REMOTE" in os.environ
        if is_client:
            self._spark = SparkSession.builder.getOrCreate()
        else:
            self._spark = build_session(_CONFIGURATION, connector_jars())
        self._automatic = newest_handle()
        self._offsets_topic = offsets_topic
        self._handle = self._observe(None if is_client else "listener")
        self._queries: dict[str, StreamingQuery] = {}

    def versions(self) -> dict[str, str]:
        jvm: Any = self._spark._jvm
        java = jvm.java.lang.System.getProperty("java.version")
        return {"spark": self._spark.version, "java": java, "python": platform.python_version()}

    def automatic(self) -> str | None:
        """How the session was observed before this driver did it itself."""
        return self._automatic.method if self._automatic is not None else None

    def compose(self) -> str:
        """The class of the listener that passes text. Fails where it is not allowed."""
        listener = Py4jListener(self._spark._jvm, lambda _: None, lambda _: None)
        composed = text_listener(self._spark.sparkContext._gateway, listener)
        return str(composed.getClass().getName())

    def configure(self, name: str, value: str) -> None:
        self._spark.conf.set(name, value)

    def start(self, name: str) -> dict[str, str]:
        """A query from the checkpoint of that name, which has read all there is."""
        query = start_query(self._frame(), self._folder / name, name)
        query.processAllAvailable()
        return self._add(name, query)

    def start_continuous(self, name: str) -> dict[str, str]:
        checkpoint = self._folder / name
        return self._add(name, start_query(self._frame(), checkpoint, name, continuous="1 second"))

    def start_real_time(self, name: str, sink: str) -> dict[str, str]:
        writer = self._frame().select("value").writeStream.format("kafka").option("topic", sink)
        writer = writer.option("kafka.bootstrap.servers", self._servers).outputMode("update")
        writer = writer.option("checkpointLocation", str(self._folder / name)).queryName(name)
        trigger: Any = {"realTime": "5 seconds"}
        return self._add(name, writer.trigger(**trigger).start())

    def restore(self, name: str) -> int:
        """The number of records that a new query reads from where the query `name` ended."""
        start = starting_offsets(
            checkpoint=str(self._folder / name), bootstrap_servers=self._servers
        )
        frame = read_kafka(self._spark, self._servers, subscribe=self._topic, startingOffsets=start)
        checkpoint = self._folder / f"{name}-restored"
        query = start_query(frame, checkpoint, "restored", availableNow=True)
        query.awaitTermination()
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    def start_to_fail(self, name: str) -> dict[str, str]:
        frame = self._frame().selectExpr("raise_error('this batch breaks')")
        query = start_query(frame, self._folder / name, name)
        try:
            query.awaitTermination()
        except StreamingQueryException:
            return {"query_id": query.id, "run_id": query.runId}
        raise AssertionError("the query did not fail")

    def keep(self, name: str) -> list[dict[str, Any]]:
        received: list[Observation] = []

        def write(batch: DataFrame, batch_id: int) -> None:
            received.append(observe_batch(batch, batch_id, "default"))

        writer = self._frame().writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", str(self._folder / name))
        query = writer.trigger(availableNow=True).queryName(name).start()
        query.awaitTermination()
        return [msgspec.to_builtins(each) for each in received]

    def read(self, name: str) -> None:
        self._queries[name].processAllAvailable()

    def stop(self, name: str) -> None:
        self._queries[name].stop()

    def deafen(self) -> None:
        """Take every listener from the session, as if the listener bus dropped all there is."""
        streams = self._spark._jsparkSession.streams()
        for listener in streams.listListeners():
            streams.removeListener(listener)

    def observe_by(self, method: Method) -> dict[str, Any]:
        stats = self.close()
        self._handle = self._observe(method)
        return stats

    def stats(self) -> dict[str, Any]:
        return asdict(self._handle.stats())

    def close(self) -> dict[str, Any]:
        self._handle.close()
        return self.stats()

    def _add(self, name: str, query: StreamingQuery) -> dict[str, str]:
        self._queries[name] = query
        return {"query_id": query.id, "run_id": query.runId}

    def _observe(self, method: Method | None) -> ObserverHandle:
        return observe(
            self._spark,
            self._servers,
            method=method,
            offsets_topic=self._offsets_topic,
            topic_partitions=1,
            heartbeat_s=HEARTBEAT_S,
        )

    def _frame(self) -> DataFrame:
        return read_kafka(
            self._spark,
            self._servers,
            **{"subscribe": self._topic, "kafka.isolation.level": "read_committed"},
        )


def main() -> None:
    driver = LaneDriver(*sys.argv[1:])
    tell("done: null")
    for line in sys.stdin:
        command, *arguments = line.split()
        method: Callable[..., Any] = getattr(driver, command)
        tell(f"done: {json.dumps(method(*arguments))}")


if __name__ == "__main__":
    main()

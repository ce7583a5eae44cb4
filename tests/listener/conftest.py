"""A driver's session in this process, and what its queries publish."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparklag_listener import ObserverHandle, driver_pipeline, observe
from sparklag_listener.events import query_poller
from sparklag_schemas import Observation
from tests import samples
from tests.listener.drivers import read_kafka, start_query
from tests.listener.offsets_topic import OffsetsTopic
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.waiting import DEADLINE_S


class Driver:
    def __init__(self, spark: Any, client: SecondClient, topic: str, checkpoints: Path) -> None:
        self.spark = spark
        self.client = client
        self.servers = client.bootstrap_servers
        self.topic = topic
        self.published = OffsetsTopic(client, f"{topic}-offsets")
        self.checkpoints = checkpoints
        self._handles: list[ObserverHandle] = []
        self._queries: list[StreamingQuery] = []

    def observe(self, bootstrap_servers: str | None = None, **settings: Any) -> ObserverHandle:
        handle = observe(
            self.spark,
            bootstrap_servers,
            **{"offsets_topic": self.published.name, "topic_partitions": 1, **settings},
        )
        self._handles.append(handle)
        return handle

    def send(self, count: int = 10, topic: str | None = None) -> None:
        self.client.produce(topic or self.topic, [b"%d" % number for number in range(count)])

    def end(self) -> dict[str, dict[int, int]]:
        return {self.topic: self.client.end_offsets(self.topic)}

    def at_end(self) -> Callable[[Sequence[Observation]], bool]:
        """A check that the newest observation is at the present end of the test's topic."""
        end = self.end()
        return lambda received: received[-1].sources[0].processed == end

    def committed(self, batch_id: int, checkpoint: str = "query") -> dict[str, dict[int, int]]:
        (saved,) = samples.committed_offsets(self.checkpoints / checkpoint, batch_id)
        return {topic: {int(n): end for n, end in ends.items()} for topic, ends in saved.items()}

    def start(
        self,
        checkpoint: str = "query",
        name: str | None = "orders",
        frame: DataFrame | None = None,
        write: Callable[[DataFrame, int], None] | None = None,
        trigger: dict[str, Any] | None = None,
        output_mode: str = "append",
        **options: Any,
    ) -> StreamingQuery:
        """Reads the test's topic, unless `frame` or `options` name another source."""
        if frame is None:
            if not {"subscribe", "subscribePattern", "assign"} & options.keys():
                options["subscribe"] = self.topic
            frame = read_kafka(self.spark, self.servers, **options)
        location = self.checkpoints / checkpoint
        query = start_query(frame, location, name, write, output_mode, **(trigger or {}))
        self._queries.append(query)
        return query

    def close(self) -> None:
        for query in self._queries:
            query.stop()
        for handle in self._handles:
            handle.close()


@pytest.fixture
def driver(
    spark: SparkSession,
    kafka: LocalKafka,
    second_client: SecondClient,
    topic_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Driver]:
    """A topic of two partitions and ten records. Spark may answer late, as on a busy machine."""
    monkeypatch.setattr(driver_pipeline, "_DESCRIBE_TIMEOUT_S", DEADLINE_S)
    monkeypatch.setattr(query_poller, "_CALL_TIMEOUT_S", DEADLINE_S)
    made = Driver(spark, second_client, second_client.create(topic_name, 2), tmp_path)
    made.send()
    yield made
    made.close()


def listeners(spark: SparkSession) -> int:
    return len(spark._jsparkSession.streams().listListeners())


def break_batch(batch: DataFrame, batch_id: int) -> None:
    """A foreachBatch function that fails, with a secret in its text."""
    raise ValueError("this batch breaks, password=S3CRET")

"""A real Spark session, and what its queries publish."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparklag_listener import ObserverHandle, observe
from tests.listener.drivers import build_session, read_kafka, start_query
from tests.listener.offsets_topic import OffsetsTopic
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One for the whole run. A test that stops one has it in a process of its own."""
    session = build_session()
    yield session
    session.stop()


class Driver:
    """A driver's doings in this process: queries on a topic of the test's own."""

    def __init__(
        self, spark: SparkSession, client: SecondClient, topic: str, checkpoints: Path
    ) -> None:
        self.spark = spark
        self.client = client
        self.servers = client.bootstrap_servers
        self.topic = topic
        self.published = OffsetsTopic(client, f"{topic}-offsets")
        self.checkpoints = checkpoints
        self._handles: list[ObserverHandle] = []
        self._queries: list[StreamingQuery] = []

    def observe(self, bootstrap_servers: str | None = None, **settings: Any) -> ObserverHandle:
        """Observe the session, publishing to the test's own topic."""
        handle = observe(
            self.spark,
            bootstrap_servers,
            **{"offsets_topic": self.published.name, "topic_partitions": 1, **settings},
        )
        self._handles.append(handle)
        return handle

    def send(self, count: int = 10, topic: str | None = None) -> None:
        """Records for the query, spread over the partitions."""
        self.client.produce(topic or self.topic, [b"%d" % number for number in range(count)])

    def start(
        self, checkpoint: str = "query", name: str | None = "orders", **options: str
    ) -> StreamingQuery:
        """Read the test's topic, unless `options` say what to subscribe to."""
        if not {"subscribe", "subscribePattern", "assign"} & options.keys():
            options["subscribe"] = self.topic
        frame = read_kafka(self.spark, self.servers, **options)
        return self.keep(start_query(frame, self.checkpoints / checkpoint, name))

    def keep(self, query: StreamingQuery) -> StreamingQuery:
        """Stop it with the test."""
        self._queries.append(query)
        return query

    def close(self) -> None:
        """Everything the test left."""
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
) -> Iterator[Driver]:
    """With a topic of two partitions and ten records."""
    made = Driver(spark, second_client, second_client.create(topic_name, 2), tmp_path)
    made.send()
    yield made
    made.close()


@pytest.fixture
def breaks() -> Callable[..., None]:
    """A foreachBatch function that fails."""

    def fail(batch: Any, batch_id: int) -> None:
        raise ValueError("this batch breaks")

    return fail

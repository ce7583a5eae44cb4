"""A client of Spark Connect, and a pipeline, on each Spark that has it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparklag_jobs.broker.child_process import ChildProcess
from tests.child_processes import run_to_end
from tests.document_blocks import command_in, items
from tests.end_to_end import START_S, Topics, reports, service
from tests.lanes.driver_process import running
from tests.lanes.lanes import Lane
from tests.listener.connect_server import ConnectServer
from tests.listener.offsets_topic import OffsetsTopic
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.spark_configuration import pyspark_environment
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

_END_S = 400.0
_PAGE = "docs/user/processing-modes.md"
_FLOW = """\
from pyspark import pipelines
from pyspark.sql import SparkSession

@pipelines.table
def orders():
    source = SparkSession.active().readStream.format("kafka")
    source = source.option("kafka.bootstrap.servers", "{servers}").option("subscribe", "{topic}")
    return source.option("startingOffsets", "earliest").load()
"""


@pytest.mark.feature("Spark", "Spark Connect")
def test_a_connect_clients_query_is_observed(
    lane: Lane, topics: Topics, second_client: SecondClient, tmp_path: Path, monkeypatch: Any
) -> None:
    topics.order(20)
    published = OffsetsTopic(second_client, topics.environment["SPARKLAG_OFFSETS_TOPIC"])
    place = (second_client.bootstrap_servers, topics.orders, published.name, tmp_path)
    end = {topics.orders: topics.ends()}
    with ConnectServer(tmp_path / "server.log", lane.python(), lane.environment()) as server:
        monkeypatch.setenv("SPARK_REMOTE", f"sc://127.0.0.1:{server.port}")
        with running(lane, *place) as client:
            query = client.do("start", "orders")["query_id"]
            published.until(query, lambda seen: seen[-1].sources[0].processed == end, "all is read")
            client.do("stop", "orders")
            last = published.await_cause(query, "terminated")
            client.do("close")
            assert client.ends() == 0
    assert (last.query, last.sources[0].processed) == ("orders", end)
    assert last.origin == ("poll" if lane.spark.startswith("3.") else "connect")


@pytest.mark.feature("Spark", "Declarative Pipelines")
def test_a_flow_of_a_pipeline_has_its_name_and_lag(
    lane: Lane, kafka: LocalKafka, second_client: SecondClient, topics: Topics, tmp_path: Path
) -> None:
    topics.order(70)
    (spec,) = [item.code for item in items() if item.page == _PAGE and item.language == "yaml"]
    servers, flows = kafka.bootstrap_servers, tmp_path / "transformations"
    spec = spec.replace("s3://bucket/shop", tmp_path.as_uri()).replace("broker:9092", servers)
    (tmp_path / "spark-pipeline.yml").write_text(spec)
    flows.mkdir()
    (flows / "orders.py").write_text(_FLOW.format(servers=servers, topic=topics.orders))
    jars = lane.run("from tests.lanes.connector import *; print(*connector_jars(), sep=',')")
    environment = lane.environment() | pyspark_environment("--jars", jars.strip())
    environment["PATH"] = f"{lane.python().parent}:{environment['PATH']}"
    environment["SPARKLAG_OFFSETS_TOPIC"] = topics.environment["SPARKLAG_OFFSETS_TOPIC"]
    command = ("bash", "-c", command_in(_PAGE, "spark-pipelines"))
    place: Any = {"log_path": tmp_path / "log", "directory": tmp_path}
    run_to_end(ChildProcess("it", command, environment=environment, **place), _END_S)
    topics.order(35)
    assert_lag_of_flow("connect", topics, kafka, tmp_path)
    unobserved = Topics(second_client)
    unobserved.environment["SPARKLAG_CHECKPOINTS__LOCATIONS"] = f"{tmp_path}/_checkpoints/*/*/*/*/*"
    unobserved.orders = topics.orders
    assert_lag_of_flow("checkpoint", unobserved, kafka, tmp_path)


def assert_lag_of_flow(origin: str, topics: Topics, kafka: LocalKafka, folder: Path) -> None:
    name = "spark_catalog.default.orders"
    with service(topics, kafka, folder / f"{origin}.log") as url:
        wait_for(partial(reports, url, name, total_lag=35, origin=origin), "it is known", START_S)

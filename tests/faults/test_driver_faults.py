"""A driver dies, its broker is away, its listener bus overflows: on real Spark."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.faults.report import Row
from tests.faults.scene import HEARTBEAT_S, OWN_PARTITIONS, Scene, scene
from tests.faults.spark_driver import START_S, Checkpoint, Query, SparkDriver
from tests.faults.toxiproxy import Toxiproxy
from tests.local_kafka import LocalKafka
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]

AWAY_S = 60.0


def driver_of(
    stage: Scene,
    folder: Path,
    read_from: str,
    publish_to: str,
    *,
    configuration: Mapping[str, str] | None = None,
    batch_s: float = 0.0,
    slow_listener_s: float = 0.0,
) -> tuple[SparkDriver, Checkpoint]:
    """A driver that was not started, with a topic that records flow into; and its checkpoint."""
    topic = stage.add_topic()
    checkpoint = Checkpoint(folder / "checkpoint", topic)
    query = Query(
        read_from=read_from,
        topic=topic,
        checkpoint=str(checkpoint.folder),
        publish_to=publish_to,
        offsets_topic=stage.offsets_topic,
        topic_partitions=OWN_PARTITIONS,
        heartbeat_s=HEARTBEAT_S,
        batch_s=batch_s,
        slow_listener_s=slow_listener_s,
    )
    return SparkDriver(query, folder, configuration), checkpoint


def observe_first_batches(stage: Scene, checkpoint: Checkpoint) -> None:
    wait_for(lambda: len(checkpoint.committed()) > 2, "the query has committed batches", START_S)
    stage.checkpoints.append(checkpoint)
    stage.settle(time.time())


def total_lag(stage: Scene, checkpoint: Checkpoint) -> int:
    event = stage.newest()[checkpoint.query_id()].event
    assert event is not None
    return int(event["total_lag"])


def test_driver_killed_in_the_middle_of_a_batch(
    kafka: LocalKafka, fault_report: Row, tmp_path: Path
) -> None:
    servers = kafka.bootstrap_servers
    with scene(servers, tmp_path) as stage:
        driver, checkpoint = driver_of(stage, tmp_path, servers, servers, batch_s=2.0)
        stage.services.start(1)
        with driver:
            observe_first_batches(stage, checkpoint)
            running = checkpoint.committed()[-1] + 1
            driver.reports(f"batch {running} began")
            with stage.fault():
                driver.kill()
                assert checkpoint.committed()[-1] < running
                # Dead, it is where its last batch ended, and its lag grows.
                killed_s = time.time()
                stage.settle(killed_s)
                then = total_lag(stage, checkpoint)
                wait_for(lambda: total_lag(stage, checkpoint) > then + 100, "its lag grows")
                driver.start()
                driver.reports(f"batch {running + 1} done")
            stage.finish(fault_report)


def test_broker_of_the_listener_away_for_a_minute(
    fault_report: Row, toxiproxy: Toxiproxy, tmp_path: Path
) -> None:
    proxy = toxiproxy.proxy("kafka")
    with LocalKafka(advertised=proxy.address) as broker:
        proxy.lead_to(broker.bootstrap_servers)
        servers = broker.internal_servers
        with scene(servers, tmp_path) as stage:
            driver, checkpoint = driver_of(stage, tmp_path, servers, proxy.address)
            stage.services.start(1)
            with driver:
                observe_first_batches(stage, checkpoint)
                began, began_s = len(checkpoint.committed()), time.monotonic()
                stage.flow(15)
                usual = (len(checkpoint.committed()) - began) / (time.monotonic() - began_s)
                with stage.fault():
                    began, began_s = len(checkpoint.committed()), time.monotonic()
                    proxy.cut()
                    stage.flow(AWAY_S)
                    away = (len(checkpoint.committed()) - began) / (time.monotonic() - began_s)
                    proxy.heal()
                stage.finish(fault_report, f"{away:.1f} batches/s with it away, {usual:.1f} before")
    # A guest: the query does not notice.
    assert away > 0.8 * usual


def test_listener_bus_overflows(kafka: LocalKafka, fault_report: Row, tmp_path: Path) -> None:
    servers = kafka.bootstrap_servers
    with scene(servers, tmp_path) as stage:
        driver, checkpoint = driver_of(
            stage,
            tmp_path,
            servers,
            servers,
            configuration={"spark.scheduler.listenerbus.eventqueue.streams.capacity": "2"},
            slow_listener_s=3.0,
        )
        stage.services.start(1)
        with driver:
            wait_for(lambda: len(checkpoint.committed()) > 2, "it has committed", START_S)
            stage.checkpoints.append(checkpoint)
            with stage.fault():
                driver.reports("Dropping event from queue streams")
                batches = len(checkpoint.committed())
                wait_for(lambda: len(checkpoint.committed()) > batches + 20, "batches go on")
            stage.finish(fault_report)

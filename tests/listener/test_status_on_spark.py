"""The status of real queries that hang, go back, and lose data; the service is in the driver."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from sparklag_listener import ObserverHandle
from tests.end_to_end import answer
from tests.listener.conftest import Driver
from tests.listener.drivers import read_kafka
from tests.runbook import is_quoted
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

Event = dict[str, Any]


class Gate:
    """A foreachBatch function that waits in the given batches."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.is_open.set()
        self.closes_after_one = False
        """The next batch passes; the one behind it waits."""

    def pass_through(self, batch: Any, batch_id: int) -> None:
        batch.count()
        self.is_open.wait()
        if self.closes_after_one:
            self.closes_after_one = False
            self.is_open.clear()


class Watched:
    def __init__(self, driver: Driver, handle: ObserverHandle, gate: Gate) -> None:
        self._driver = driver
        self._handle = handle
        self.gate = gate
        self.query: StreamingQuery

    def start(self, **options: Any) -> None:
        self.query = self._driver.start(write=self.gate.pass_through, **options)

    def complete_batch(self) -> Event:
        """One with ten records, and nothing is left."""
        self._driver.send()
        self.query.processAllAvailable()
        return self.reports(lambda event: event["total_lag"] == 0, "it keeps up")

    def reports(self, condition: Callable[[Event], bool], what: str) -> Event:
        result: list[Event] = []

        def is_shown() -> bool:
            event = self._event()
            if event is not None and condition(event):
                result.append(event)
            return bool(result)

        wait_for(is_shown, what)
        return result[0]

    def is_quoted(self, section: str) -> bool:
        """Whether the service says what the runbook quotes there."""
        return is_quoted(str(self._handle.stats().url), str(self.query.id), section)

    def _event(self) -> Event | None:
        return answer(f"{self._handle.stats().url}/lag/{self.query.id}")


@pytest.fixture
def watched(driver: Driver) -> Iterator[Watched]:
    gate = Gate()
    handle = driver.observe(
        driver.servers,
        embedded=True,
        http_port=0,
        lag_topic=f"{driver.topic}-lag",
        refresh_interval_s=0.2,
        publish_interval_s=0.2,
        earliest_interval_s=0.2,
        heartbeat_s=2,
        thresholds={".*": {"stall_after_s": 2}},
    )
    wait_for(lambda: handle.stats().url is not None, "the service answers")
    yield Watched(driver, handle, gate)
    gate.is_open.set()


def test_one_that_hangs_in_a_batch_stalls_and_goes_on(watched: Watched, driver: Driver) -> None:
    watched.start()
    for _ in range(3):
        watched.complete_batch()
    watched.gate.is_open.clear()
    driver.send(7)
    # On a busy machine it may have stalled before.
    stalled = watched.reports(
        lambda e: e["status"] == "STALL" and e["total_lag"] == 7 and e["max_time_lag_s"] > 1,
        "it stalls",
    )
    assert stalled["reason"].startswith("no completed batch for ")
    assert stalled["reason"].endswith("; lag is 7 records")
    wait_for(lambda: watched.is_quoted("Hung in the driver"), "no Spark job runs")
    watched.gate.is_open.set()
    watched.reports(lambda e: e["status"] == "OK" and e["total_lag"] == 0, "it goes on")


def has_run(times: int, event: Event) -> bool:
    return len(event["runs"]["finished"]) == times


def test_one_that_is_run_again_and_again_is_missed(watched: Watched, driver: Driver) -> None:
    for runs in (1, 2, 3):
        driver.send()
        watched.start(trigger={"availableNow": True})
        watched.query.awaitTermination()
        ended = watched.reports(partial(has_run, runs), "the run is over")
        assert (ended["status"], ended["total_lag"]) == ("FINISHED", 0)
    driver.send(5)
    missed = watched.reports(lambda event: event["status"] != "FINISHED", "it stays away")
    assert missed["status"] == "WARN"
    assert missed["reason"].startswith("has not run for ")
    assert missed["reason"].endswith("; lag is 5 records")
    watched.start()
    watched.reports(lambda e: e["status"] == "OK" and e["total_lag"] == 0, "it runs again")


@pytest.mark.slow
def test_one_that_hangs_in_its_first_batch_stalls_and_goes_on(watched: Watched) -> None:
    watched.gate.is_open.clear()
    watched.start()
    # On a busy machine it may have stalled in `batch.count()`.
    stalled = watched.reports(
        lambda e: e["status"] == "STALL" and "no Spark job for" in e["reason"], "it stalls"
    )
    assert stalled["reason"].startswith("batch 0 has run for ")
    assert stalled["batch_id"] is None
    batch = stalled["running_batch"]
    assert batch["batch_id"] == 0
    # Those of `batch.count()`.
    assert batch["tasks_done"] == batch["tasks_total"]
    assert batch["started_at"] <= batch["progressed_at"] <= batch["observed_at"]
    watched.gate.is_open.set()
    watched.reports(
        lambda e: e["status"] == "OK" and e["total_lag"] == 0 and not e["running_batch"],
        "it goes on",
    )


@pytest.mark.slow
def test_a_hot_partition_and_a_near_retention_are_as_the_runbook_quotes(
    watched: Watched, driver: Driver
) -> None:
    client, topic = driver.client, driver.client.create(f"{driver.topic}-hot", 4)
    for partition in range(4):
        client.produce(topic, [b""] * 500, partition=partition)
    order: list[int] = []

    def collect(batch: Any, batch_id: int) -> None:
        order.extend(row["partition"] for row in batch.select("partition").collect())

    watched.query = driver.start(subscribe=topic, write=collect)
    watched.reports(lambda event: event["total_lag"] == 0, "it keeps up")
    watched.query.stop()
    # There is one core, and the hot partition's task is the last.
    hot = order[-1]
    for partition in range(4):
        client.produce(topic, [b""] * (3_000 if partition == hot else 40), partition=partition)
    sleep = "java_method('java.lang.Thread', 'sleep', cast(50 as bigint))"
    rows = read_kafka(driver.spark, driver.servers, subscribe=topic)
    watched.query = driver.start(frame=rows.selectExpr("value", sleep))
    wait_for(lambda: watched.is_quoted("Hot partition"), "a partition is hot")
    # While the task runs, the log start of its partition comes nearer.
    starts = iter(range(1, 500))

    def is_near() -> bool:
        client.delete_records(topic, {hot: next(starts)})
        return watched.is_quoted("SparklagQueryHeadroomLow")

    wait_for(is_near, "retention is near")


@pytest.mark.slow
def test_an_older_checkpoint_is_a_rewind(watched: Watched, driver: Driver) -> None:
    checkpoint, older = driver.checkpoints / "query", driver.checkpoints / "older"
    watched.start(maxOffsetsPerTrigger="10")
    watched.complete_batch()
    watched.query.stop()
    shutil.copytree(checkpoint, older)
    watched.start(maxOffsetsPerTrigger="10")
    for _ in range(3):
        watched.complete_batch()
    watched.query.stop()
    shutil.rmtree(checkpoint)
    shutil.copytree(older, checkpoint)
    driver.send()
    watched.gate.closes_after_one = True
    watched.start(maxOffsetsPerTrigger="10")
    back = watched.reports(lambda event: event["status"] == "REWIND", "it went back")
    assert "went back from" in back["reason"]
    assert any(one["rewound_from"] for one in back["topics"][0]["partitions"])
    watched.gate.is_open.set()
    watched.reports(lambda e: e["status"] == "OK" and e["total_lag"] == 0, "it is there again")

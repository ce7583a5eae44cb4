"""A real query that loses its checkpoint begins at the stored offsets."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import httpx
import pytest

from tests.commands import succeed
from tests.databases.postgresql import PostgreSQLServer
from tests.drivers.restarting import NAME
from tests.end_to_end import START_S, Topics, answer, service
from tests.local_kafka import LocalKafka
from tests.restarting_query import RestartingQuery
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

RECORDS = 500
KILL_AFTER = 4
"""Batches."""


def sparklag(*arguments: str) -> str:
    return succeed(sys.executable, "-m", "sparklag_service", *arguments)


def total(offsets: dict[str, dict[str, int]]) -> int:
    return sum(sum(partitions.values()) for partitions in offsets.values())


def only_the_last_batch_was_written_twice(run: RestartingQuery, before: int) -> None:
    times = run.times_written()
    assert max(times.values()) <= 2
    twice = {place for place, count in times.items() if count == 2}
    last_batch = set(run.batches()[before - 1][1])
    assert twice <= last_batch, "more than the last batch of the killed run was written twice"


def test_a_driver_begins_from_its_store(kafka: LocalKafka, topics: Topics, tmp_path: Path) -> None:
    run = RestartingQuery(kafka, topics, tmp_path, f"sqlite:///{tmp_path}/offsets.db")
    topics.order(RECORDS)
    with run.driver("record"):  # and killed
        wait_for(lambda: run.has_kept(KILL_AFTER), "batches are recorded", START_S)
    before = len(run.batches())
    shutil.rmtree(run.checkpoint)
    with run.driver("record") as driver:
        starting = json.loads(driver.stdout.readline())
        assert total(starting) >= 40 * KILL_AFTER
        wait_for(run.is_complete, "every record is written", START_S)
    only_the_last_batch_was_written_twice(run, before)
    # Nothing was committed to Kafka.
    assert topics.names() == {topics.orders}


def test_a_service_keeps_the_offsets_and_gives_them_back(
    kafka: LocalKafka, topics: Topics, postgresql: PostgreSQLServer, tmp_path: Path
) -> None:
    store = postgresql.new_database()
    run = RestartingQuery(kafka, topics, tmp_path, store)
    topics.environment["SPARKLAG_STORE__URL"] = store
    topics.order(RECORDS)
    with service(topics, kafka, tmp_path / "service.log") as url:
        with run.driver("publish"):  # and killed
            wait_for(lambda: run.has_kept(KILL_AFTER), "batches are recorded", START_S)
        before = len(run.batches())
        record = run.kept()
        assert record is not None

        given = httpx.get(f"{url}/offsets/{NAME}", timeout=30)
        assert given.status_code == 200, given.text
        assert given.headers["Sparklag-Batch-Id"] == str(record.batch_id)
        (topic,) = record.topics
        expected = {str(partition): until for partition, until in topic.end_offsets().items()}
        assert given.json() == {topics.orders: expected}
        restored = sparklag("offsets", "restore", NAME, "--store", store, "--json")
        assert restored == f"{given.text}\n"
        shown = sparklag("offsets", "show", NAME, "--store", store, "--json")
        assert json.loads(shown)["batch_id"] == record.batch_id
        early = httpx.get(f"{url}/offsets/{NAME}?at=1000", timeout=30)
        assert early.status_code == 404
        assert early.json()["type"].endswith("/before-first-batch")
        unknown = httpx.get(f"{url}/offsets/nobody", timeout=30).json()
        assert unknown["type"].endswith("unknown-query")

        shutil.rmtree(run.checkpoint)
        with run.driver("publish") as driver:
            assert json.loads(driver.stdout.readline()) == given.json()
            wait_for(run.is_complete, "every record is written", START_S)
            ready = answer(f"{url}/health/ready")
            assert ready is not None
            assert ready["counters"]["batches_recorded"] > KILL_AFTER
    only_the_last_batch_was_written_twice(run, before)

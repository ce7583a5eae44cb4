"""A real query that loses its checkpoint begins where the offset store says it was."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from sparklag_offsets.store.batch_record import BatchRecord
from sparklag_offsets.store.opening import open_store
from sparklag_pipeline.local_kafka import LocalKafka
from tests.databases.postgresql import PostgreSQLServer
from tests.drivers.restarting import NAME
from tests.end_to_end import START_S, Topics, answer, process, service
from tests.second_client import SecondClient
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

RECORDS = 500
KILL_AFTER = 4
"""Batches."""


class Run:
    """A query that is started, killed and started again, and what it wrote."""

    def __init__(self, kafka: LocalKafka, topics: Topics, folder: Path, store: str) -> None:
        self.topics = topics
        self.checkpoint = folder / "checkpoint"
        self.store = store
        self._kafka = kafka
        self._folder = folder
        self._written = folder / "written.jsonl"

    def driver(self, way: str) -> AbstractContextManager[Any]:
        where = (self._kafka.bootstrap_servers, self.topics.orders, str(self.checkpoint))
        arguments = (*where, self.store, str(self._written), way)
        log = self._folder / "driver.log"
        return process(
            self.topics, log, "tests.drivers.restarting", *arguments, stdout=subprocess.PIPE
        )

    def batches(self) -> list[tuple[int, list[tuple[int, int]]]]:
        """What it wrote, each batch once for each time: its number, and its records."""
        if not self._written.exists():
            return []
        lines = self._written.read_text(encoding="utf-8").splitlines()
        read = [json.loads(line) for line in lines]
        return [(number, [(at[0], at[1]) for at in places]) for number, places in read]

    def times_written(self) -> Counter[tuple[int, int]]:
        return Counter(place for _, places in self.batches() for place in places)

    def is_complete(self) -> bool:
        ends = self.topics.ends()
        return len(self.times_written()) == sum(ends.values())

    def kept(self) -> BatchRecord | None:
        """The last record of the query that the store has."""

        async def ask() -> BatchRecord | None:
            store = open_store(self.store)
            try:
                found = await store.queries(NAME)
                newest = max(found, key=lambda query: query.last_at, default=None)
                return await store.as_of(newest.query_id, None) if newest is not None else None
            finally:
                await store.aclose()

        if self.store.startswith("sqlite") and not Path(self.store.partition("///")[2]).exists():
            return None
        return asyncio.run(ask())

    def has_kept(self, batch_id: int) -> bool:
        record = self.kept()
        return record is not None and record.batch_id >= batch_id


def sparklag(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sparklag_service", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def total(offsets: dict[str, dict[str, int]]) -> int:
    return sum(sum(partitions.values()) for partitions in offsets.values())


@pytest.fixture
def topics(second_client: SecondClient) -> Topics:
    return Topics(second_client)


def only_the_last_batch_was_written_twice(run: Run, before: int) -> None:
    """What the killed run wrote is written once, but for its last batch."""
    times = run.times_written()
    assert max(times.values()) <= 2
    twice = {place for place, count in times.items() if count == 2}
    last_batch = set(run.batches()[before - 1][1])
    assert twice <= last_batch, "more than the last batch of the killed run was written twice"


def test_a_driver_that_keeps_its_own_offsets_begins_from_them(
    kafka: LocalKafka, topics: Topics, tmp_path: Path
) -> None:
    run = Run(kafka, topics, tmp_path, f"sqlite:///{tmp_path}/offsets.db")
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
    # Nothing was said to Kafka.
    assert topics.names() == {topics.orders}


def test_a_service_keeps_the_offsets_and_gives_them_back(
    kafka: LocalKafka, topics: Topics, postgresql: PostgreSQLServer, tmp_path: Path
) -> None:
    store = postgresql.new_database()
    run = Run(kafka, topics, tmp_path, store)
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
        expected = {str(partition): until for partition, until in topic.until().items()}
        assert given.json() == {topics.orders: expected}
        assert sparklag("offsets", "restore", NAME, "--store", store, "--json").stdout == (
            given.text + "\n"
        )
        shown = sparklag("offsets", "show", NAME, "--store", store, "--json")
        assert json.loads(shown.stdout)["batch_id"] == record.batch_id
        early = httpx.get(f"{url}/offsets/{NAME}?at=1000", timeout=30)
        assert (early.status_code, early.json()["type"].rpartition("/")[2]) == (
            404,
            "before-first-batch",
        )
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

"""Spark starts at the offsets that it is given back."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from sparklag_listener import ObserverHandle, ending_offsets, starting_offsets
from sparklag_offsets.store import open_store
from sparklag_offsets.store.batch_record import BatchRecord
from sparklag_schemas import SparklagError
from tests.listener.conftest import Driver
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    # PySpark leaves the socket that rows came through to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/offsets.db"


def record_of(store: str, at_ms: int | None = None) -> BatchRecord:
    async def ask() -> BatchRecord | None:
        opened = open_store(store)
        try:
            (query,) = await opened.queries("orders")
            return await opened.as_of(query.query_id, at_ms)
        finally:
            await opened.aclose()

    record = asyncio.run(ask())
    assert record is not None
    return record


def process_all(driver: Driver, handle: ObserverHandle, store: str) -> BatchRecord:
    """Let the running query read what there is, and the store record it: the last record."""
    for query in driver.spark.streams.active:
        query.processAllAvailable()
    (ends,) = driver.end().values()

    def is_recorded() -> bool:
        return handle.stats().recorded > 0 and record_of(store).topics[0].end_offsets() == ends

    wait_for(is_recorded, "all of it is recorded")
    return record_of(store)


def places(frame: DataFrame) -> Counter[tuple[int, int]]:
    return Counter((row["partition"], row["offset"]) for row in frame.collect())


def window(driver: Driver, starting: str, ending: str) -> Counter[tuple[int, int]]:
    read = driver.spark.read.format("kafka").option("kafka.bootstrap.servers", driver.servers)
    read = read.option("subscribe", driver.topic).option("startingOffsets", starting)
    return places(read.option("endingOffsets", ending).load())


def test_a_window_is_read_again_and_a_new_query_continues(driver: Driver, store: str) -> None:
    handle = driver.observe(store=store, publish=False)
    query = driver.start(maxOffsetsPerTrigger="10")
    first = process_all(driver, handle, store)
    driver.send(20)
    last = process_all(driver, handle, store)
    assert last.batch_id > first.batch_id
    assert not last.is_inferred
    assert first.processed_at < last.processed_at
    starting = starting_offsets("orders", store=store, at=first.processed_at)
    read_again = window(driver, starting, ending_offsets("orders", store=store))
    assert sum(read_again.values()) == 20
    assert set(read_again.values()) == {1}
    # The same from the checkpoint alone.
    checkpoint = str(driver.checkpoints / "query")
    from_checkpoint = starting_offsets(checkpoint=checkpoint, bootstrap_servers=driver.servers)
    assert from_checkpoint == starting_offsets("orders", store=store)
    query.stop()
    driver.client.add_partitions(driver.topic, 3)
    driver.send(30)
    starting = starting_offsets("orders", store=store)
    assert json.loads(starting)[driver.topic]["2"] == -2
    received: Counter[tuple[int, int]] = Counter()
    again = driver.start(
        "new", write=lambda batch, _: received.update(places(batch)), startingOffsets=starting
    )
    again.processAllAvailable()
    assert sum(received.values()) == 30
    assert set(received.values()) == {1}
    # A window that ended before the partition was there has nothing of it.
    ending = ending_offsets("orders", store=store, at=last.processed_at)
    assert sum(window(driver, "earliest", ending).values()) == 30


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"publish": False}, "observe(publish=False) only records: it needs store="),
        ({"store": "redis://h/0"}, "'redis://h/0' is not the URL of an offset store"),
        ({"store": "sqlite:///no-such-folder/o.db"}, "there is no folder for it"),
        ({"store": "sqlite://"}, "is lost at the end: name a file"),
    ],
)
def test_an_invalid_store_fails(driver: Driver, arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SparklagError) as refused:
        driver.observe(**arguments)
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)

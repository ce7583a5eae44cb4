"""Queries whose drivers say nothing: their lag from the checkpoint, against another client's."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.end_to_end import (
    START_S,
    Checkpoint,
    Topics,
    kill,
    lag_by_partition,
    lag_of,
    process,
    reports,
    service,
)
from tests.local_kafka import LocalKafka
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

QUERIES = ("orders", "continuous")


def agrees(url: str, topics: Topics, folder: Path) -> bool:
    """Whether the lag is that of the checkpoint's newest batch, measured by another client."""
    checkpoint = Checkpoint(folder)
    batch = checkpoint.committed_batches()[-1]
    expected = topics.lag_after(checkpoint, batch)
    total = sum(expected.values())
    return (
        reports(url, folder.name, batch_id=batch, total_lag=total)
        and lag_by_partition(lag_of(url, folder.name)) == expected
    )


def test_lag_of_a_checkpoint_alone(kafka: LocalKafka, topics: Topics, tmp_path: Path) -> None:
    folder, gate = tmp_path / "checkpoints", tmp_path / "gate"
    folder.mkdir()
    topics.order(350)
    topics.environment["SPARKLAG_CHECKPOINTS__LOCATIONS"] = f"{folder}/*"
    topics.environment["SPARKLAG_CHECKPOINTS__INTERVAL_S"] = "0.5"
    topics.environment["SPARKLAG_CHECKPOINTS__FIND_INTERVAL_S"] = "1"
    arguments = [kafka.bootstrap_servers, topics.orders, str(folder), str(gate)]
    with service(topics, kafka, tmp_path / "service.log") as url:
        with process(topics, tmp_path / "driver.log", "tests.drivers.untouched", *arguments) as it:
            third = partial(reports, url, "orders", planned_batch_id=2)
            wait_for(third, "the third batch runs", START_S)
            running = lag_of(url, "orders")
            checkpoint = Checkpoint(folder / "orders")
            read, planned = (sum(checkpoint.processed(n, topics.orders).values()) for n in (1, 2))
            assert running["batch_id"] == 1
            assert sum(topics.ends().values()) == 350
            assert running["total_lag"] == 350 - read, running
            assert running["in_flight"] == planned - read
            state = (running["origin"], running["run_id"], running["status"])
            assert state == ("checkpoint", None, "OK")
            gate.touch()
            for query in QUERIES:
                caught_up = partial(reports, url, query, total_lag=0)
                wait_for(caught_up, f"{query} has read all", START_S)
            assert lag_of(url, "continuous")["origin"] == "checkpoint"
            kill(it)

        topics.order(130)
        for query in QUERIES:
            wait_for(partial(agrees, url, topics, folder / query), f"{query} agrees")
            assert lag_of(url, query)["total_lag"] >= 130
        topics.order(70)
        for query in QUERIES:
            wait_for(partial(agrees, url, topics, folder / query), f"{query} agrees")
            dead = lag_of(url, query)
            assert dead["total_lag"] >= 200
            assert dead["in_flight"] is None or dead["planned_batch_id"] > dead["batch_id"]

"""Queries whose drivers say nothing: their lag from the checkpoint, against another client's."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end import START_S, Checkpoint, Topics, answer, kill, process, service
from tests.local_kafka import LocalKafka
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def agrees(url: str, topics: Topics, folder: Path) -> bool:
    """Whether the lag is that of the checkpoint's newest batch, by partition, as measured beside
    the service."""
    checkpoint = Checkpoint(folder)
    batch = checkpoint.committed_batches()[-1]
    expected = topics.lag_after(checkpoint, batch)
    event = answer(f"{url}/lag/{folder.name}")
    if event is None or event["batch_id"] != batch:
        return False
    (topic,) = event["topics"]
    found = {one["partition"]: one["lag"] for one in topic["partitions"]}
    return found == expected and event["total_lag"] == sum(expected.values())


def lag(url: str, query: str) -> dict[str, Any]:
    event = answer(f"{url}/lag/{query}")
    assert event is not None
    return event


def test_lag_of_a_driver_that_knows_nothing_of_it_and_is_killed(
    kafka: LocalKafka, topics: Topics, tmp_path: Path
) -> None:
    folder, gate = tmp_path / "checkpoints", tmp_path / "gate"
    folder.mkdir()
    topics.order(350)
    topics.environment["SPARKLAG_CHECKPOINTS__LOCATIONS"] = f"{folder}/*"
    topics.environment["SPARKLAG_CHECKPOINTS__INTERVAL_S"] = "0.5"
    topics.environment["SPARKLAG_CHECKPOINTS__FIND_INTERVAL_S"] = "1"
    arguments = [kafka.bootstrap_servers, topics.orders, str(folder), str(gate)]
    with service(topics, kafka, tmp_path / "service.log") as url:
        with process(topics, tmp_path / "driver.log", "tests.drivers.untouched", *arguments) as it:

            def in_the_third_batch() -> bool:
                event = answer(f"{url}/lag/orders")
                return event is not None and event["planned_batch_id"] == 2

            wait_for(in_the_third_batch, "the third batch runs", START_S)
            running = lag(url, "orders")
            checkpoint = Checkpoint(folder / "orders")
            read, planned = (sum(checkpoint.processed(n, topics.orders).values()) for n in (1, 2))
            assert running["batch_id"] == 1
            assert sum(topics.ends().values()) == 350
            assert running["total_lag"] == 350 - read, running
            assert running["in_flight"] == planned - read
            assert (running["origin"], running["run_id"], running["status"]) == (
                "checkpoint",
                None,
                "OK",
            )
            gate.touch()

            def caught_up() -> bool:
                events = [answer(f"{url}/lag/{query}") for query in ("orders", "continuous")]
                return all(event is not None and event["total_lag"] == 0 for event in events)

            wait_for(caught_up, "both queries have read all", START_S)
            assert lag(url, "continuous")["origin"] == "checkpoint"
            kill(it)

        topics.order(130)
        for query in ("orders", "continuous"):
            wait_for(partial(agrees, url, topics, folder / query), f"{query} agrees")
            assert lag(url, query)["total_lag"] >= 130
        topics.order(70)
        for query in ("orders", "continuous"):
            wait_for(partial(agrees, url, topics, folder / query), f"{query} agrees")
            dead = lag(url, query)
            assert dead["total_lag"] >= 200
            assert dead["in_flight"] is None or dead["planned_batch_id"] > dead["batch_id"]

        # The same query, observed from now on: the two positions are one.
        known = lag(url, "orders")
        arguments = [kafka.bootstrap_servers, topics.orders, str(folder / "orders"), "seen", "-"]
        log = tmp_path / "observed.log"
        with process(topics, log, "tests.drivers.observed", *arguments) as driver:

            def spoken_of() -> bool:
                event = answer(f"{url}/lag/{known['query_id']}")
                return event is not None and event["run_id"] is not None

            wait_for(spoken_of, "the driver speaks of it", START_S)
            begun = lag(url, known["query_id"])
            assert begun["query"] == "seen"
            assert begun["batch_id"] >= known["batch_id"]

            def observed_to_the_end() -> bool:
                event = lag(url, "seen")
                return (event["total_lag"], event["origin"]) == (0, "listener")

            wait_for(observed_to_the_end, "its listener tells of its last batch", START_S)
            kill(driver)
        topics.order(60)
        wait_for(lambda: lag(url, "seen")["status"] == "STOP", "its silence is noticed", START_S)
        assert lag(url, "seen")["total_lag"] == 60

"""The main job: a real query's lag, against lag computed from its checkpoint by another client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from sparklag_pipeline.local_kafka import LocalKafka
from sparklag_schemas import LagEvent, decode_lag_event
from tests.second_client import SecondClient
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

_START_S = 240.0
"""A Spark driver on a busy machine."""


class Checkpoint:
    """What Spark itself wrote, read without any code of ours."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def committed_batches(self) -> list[int]:
        commits = self._folder / "commits"
        if not commits.is_dir():
            return []
        return sorted(int(file.name) for file in commits.iterdir() if file.name.isdigit())

    def processed(self, batch: int, topic: str) -> dict[int, int]:
        """The exclusive end of a batch by partition."""
        source = (self._folder / "offsets" / str(batch)).read_text().splitlines()[2]
        return {int(number): offset for number, offset in json.loads(source)[topic].items()}


class Topics:
    """The query's input, on the shared broker, and sparklag's own topics beside it."""

    def __init__(self, client: SecondClient) -> None:
        unique = uuid.uuid4().hex[:8]
        self._client = client
        self.orders = client.create(f"orders-{unique}", 4)
        self.totals = f"order-totals-{unique}"
        self.lag = f"consumer-lag-{unique}"
        self.environment = os.environ | {
            "SPARKLAG_OFFSETS_TOPIC": f"processed-offsets-{unique}",
            "SPARKLAG_LAG_TOPIC": self.lag,
            "SPARKLAG_GROUP_ID": f"sparklag-{unique}",
            "SPARKLAG_TOPIC_PARTITIONS": "2",
        }

    def order(self, count: int) -> None:
        for customer in range(7):
            orders = [
                {
                    "order_id": str(number),
                    "customer": f"customer-{customer}",
                    "amount_cents": number,
                    "ordered_at": 1_790_000_000_000 + number,
                }
                for number in range(customer, count, 7)
            ]
            self._client.produce(
                self.orders,
                [json.dumps(order).encode() for order in orders],
                key=f"customer-{customer}".encode(),
            )

    def lag_after(self, checkpoint: Checkpoint, batch: int) -> dict[int, int]:
        """End offsets of the other client less what the checkpoint says was processed."""
        processed = checkpoint.processed(batch, self.orders)
        ends = self._client.end_offsets(self.orders)
        return {number: end - processed[number] for number, end in ends.items()}

    def newest_event(self) -> LagEvent:
        events = [
            decode_lag_event(value)
            for message in self._client.read_all(self.lag)
            if (value := message.value()) is not None
        ]
        return max(events, key=lambda event: event.version)


@pytest.fixture
def topics(second_client: SecondClient) -> Topics:
    return Topics(second_client)


@contextmanager
def process(topics: Topics, log: Path, *arguments: str, **popen: Any) -> Iterator[Any]:
    """A Python process in a group of its own, with the JVM it starts; gone afterwards."""
    with log.open("wb") as errors:
        started = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env=topics.environment,
            stderr=errors,
            start_new_session=True,
            **popen,
        )
    try:
        yield started
    except BaseException:
        sys.stderr.write(log.read_text(errors="replace")[-5_000:])
        raise
    finally:
        kill(started)


def kill(started: subprocess.Popen[Any]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.communicate()


@contextmanager
def service(topics: Topics, kafka: LocalKafka, log: Path) -> Iterator[str]:
    """`sparklag serve` on a free port: its address."""
    arguments = ["--bootstrap-servers", kafka.bootstrap_servers, "--http-port", "0"]
    with process(topics, log, "sparklag_service", "serve", *arguments):
        wait_for(lambda: "serving http://" in log.read_text(), "the service serves", 120)
        url = log.read_text().partition("serving ")[2].split()[0]
        wait_for(lambda: _answer(f"{url}/health/ready") is not None, "it is ready", 120)
        yield url


def order_totals(topics: Topics, kafka: LocalKafka, checkpoint: Path, log: Path) -> Any:
    return process(
        topics,
        log,
        "sparklag_pipeline.order_totals",
        "--bootstrap-servers",
        kafka.bootstrap_servers,
        "--orders-topic",
        topics.orders,
        "--totals-topic",
        topics.totals,
        "--checkpoint",
        str(checkpoint),
        "--max-offsets-per-trigger",
        "100",
        "--trigger-interval",
        "5 seconds",
    )


def _answer(url: str) -> dict[str, Any] | None:
    try:
        answer = httpx.get(url, timeout=30)
    except httpx.HTTPError:
        return None
    return answer.json() if answer.is_success else None


def lag_by_partition(event: dict[str, Any]) -> dict[int, int]:
    (topic,) = event["topics"]
    return {partition["partition"]: partition["lag"] for partition in topic["partitions"]}


def agrees(url: str, topics: Topics, checkpoint: Checkpoint, batch: int) -> bool:
    """Whether REST and the topic both say what the checkpoint and the other client say."""
    event = _answer(f"{url}/lag/orders")
    newest = topics.newest_event()
    if event is None or event["batch_id"] != batch or event["event_id"] != newest.event_id:
        return False
    expected = topics.lag_after(checkpoint, batch)
    total = sum(expected.values())
    return lag_by_partition(event) == expected and event["total_lag"] == total


def batch_seen(url: str) -> int:
    event = _answer(f"{url}/lag/orders")
    return -1 if event is None or event["batch_id"] is None else int(event["batch_id"])


def test_lag_agrees_while_the_query_runs_after_it_was_killed_and_after_it_restarts(
    kafka: LocalKafka, topics: Topics, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    checkpoint = Checkpoint(folder)
    topics.order(1_000)
    with service(topics, kafka, tmp_path / "service.log") as url:
        with order_totals(topics, kafka, folder, tmp_path / "first.log") as driver:
            wait_for(lambda: batch_seen(url) >= 1, "a batch was observed", _START_S)

            def agrees_while_it_runs() -> bool:
                batch = batch_seen(url)
                # Between two batches: what was seen is what the checkpoint holds.
                return checkpoint.committed_batches()[-1] == batch and agrees(
                    url, topics, checkpoint, batch
                )

            wait_for(agrees_while_it_runs, "lag agrees while the query runs", _START_S)
            running = _answer(f"{url}/lag/orders")
            assert running is not None
            assert running["status"] == "OK"
            assert running["total_lag"] > 0

            def between_batches() -> bool:
                done = checkpoint.committed_batches()[-1]
                return batch_seen(url) == done

            wait_for(between_batches, "a batch was just observed", _START_S)
            kill(driver)

        last = checkpoint.committed_batches()[-1]
        topics.order(130)
        wait_for(lambda: agrees(url, topics, checkpoint, last), "lag grows after kill -9")
        dead = _answer(f"{url}/lag/orders")
        assert dead is not None
        assert dead["total_lag"] >= 130

        with order_totals(topics, kafka, folder, tmp_path / "second.log"):

            def caught_up() -> bool:
                event = _answer(f"{url}/lag/orders")
                return event is not None and event["total_lag"] == 0

            wait_for(caught_up, "the restarted query catches up", _START_S)

            def agrees_again() -> bool:
                return agrees(url, topics, checkpoint, checkpoint.committed_batches()[-1])

            wait_for(agrees_again, "lag agrees after the restart", _START_S)
            again = _answer(f"{url}/lag/orders")
            assert again is not None
            assert again["query_id"] == dead["query_id"]
            assert again["run_id"] != dead["run_id"]


def test_with_the_service_embedded_the_driver_answers_for_its_query(
    kafka: LocalKafka, topics: Topics, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    checkpoint = Checkpoint(folder)
    topics.order(600)
    arguments = ["tests.drivers.embedded", kafka.bootstrap_servers, topics.orders, str(folder)]
    with process(topics, tmp_path / "driver.log", *arguments, stdout=subprocess.PIPE) as driver:
        url = driver.stdout.readline().decode().strip()
        wait_for(lambda: batch_seen(url) >= 1, "a batch was observed", _START_S)
        wait_for(
            lambda: agrees(url, topics, checkpoint, checkpoint.committed_batches()[-1]),
            "lag agrees",
            _START_S,
        )
        event = _answer(f"{url}/lag/orders")
        assert event is not None
        assert event["measured_by"] == "embedded"
        driver.terminate()
        assert driver.wait(60) == -signal.SIGTERM

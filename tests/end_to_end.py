"""Real drivers and a real service as processes, and what another client and the checkpoint say."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import httpx

from sparklag_schemas import LagEvent, decode_lag_event
from tests.second_client import SecondClient
from tests.waiting import wait_for

START_S = 240.0
"""A Spark driver, or a service beside one, on a busy machine."""


class Broker(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...


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
        source = (self._folder / "offsets" / str(batch)).read_text().splitlines()[2]
        return {int(number): offset for number, offset in json.loads(source)[topic].items()}


class Topics:
    """The query's input, on the shared broker, and sparklag's own topics beside it."""

    def __init__(self, client: SecondClient) -> None:
        unique = uuid.uuid4().hex[:8]
        self._client = client
        self._unique = unique
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

    def names(self) -> set[str]:
        return {name for name in self._client.topics() if name.endswith(self._unique)}

    def ends(self) -> dict[int, int]:
        return self._client.end_offsets(self.orders)

    def lag_after(self, checkpoint: Checkpoint, batch: int) -> dict[int, int]:
        """End offsets of the other client less what was processed by the checkpoint."""
        processed = checkpoint.processed(batch, self.orders)
        return {number: end - processed[number] for number, end in self.ends().items()}

    def newest_event(self) -> LagEvent:
        events = [
            decode_lag_event(value)
            for message in self._client.read_all(self.lag)
            if (value := message.value()) is not None
        ]
        return max(events, key=lambda event: event.version)


@contextmanager
def process(topics: Topics, log: Path, *arguments: str, **popen: Any) -> Iterator[Any]:
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
def service(topics: Topics, kafka: Broker, log: Path, *options: str) -> Iterator[str]:
    arguments = ["--bootstrap-servers", kafka.bootstrap_servers, "--http-port", "0", *options]
    with process(topics, log, "sparklag_service", "serve", *arguments):
        wait_for(lambda: "serving http://" in log.read_text(), "the service serves", START_S)
        url = re.findall(r"serving (http://[\w.:]+)", log.read_text())[0]
        wait_for(lambda: answer(f"{url}/health/ready") is not None, "it is ready", START_S)
        yield url


def reports(url: str, query: str, **fields: object) -> bool:
    event = answer(f"{url}/lag/{query}")
    return event is not None and all(event[name] == value for name, value in fields.items())


def lag_of(url: str, query: str) -> dict[str, Any]:
    event = answer(f"{url}/lag/{query}")
    assert event is not None
    return event


def lag_by_partition(event: dict[str, Any]) -> dict[int, int]:
    (topic,) = event["topics"]
    return {partition["partition"]: partition["lag"] for partition in topic["partitions"]}


def batch_observed(url: str) -> int:
    """Of query `orders`; -1 before its first."""
    event = answer(f"{url}/lag/orders")
    return -1 if event is None or event["batch_id"] is None else int(event["batch_id"])


def answer(url: str) -> dict[str, Any] | None:
    try:
        answer = httpx.get(url, timeout=30)
    except httpx.HTTPError:
        return None
    return answer.json() if answer.is_success else None

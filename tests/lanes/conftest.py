"""One driver for each lane: what it did, what was published, and what it left."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scripts.lanes_page import versions_with
from sparklag_offsets.checkpoints import CheckpointStore, read_checkpoint
from sparklag_offsets.errors import CheckpointError
from sparklag_schemas import Observation
from tests.lanes.driver_process import LaneProcess, running
from tests.lanes.lanes import LANES, Lane
from tests.listener.offsets_topic import OffsetsTopic
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.waiting import wait_for

SILENT = ("spark.sql.streaming.noDataProgressEventInterval", "3600000")
UNREAD = 6
"""What the query `orders` has not read when another starts from its position."""
SECOND_FORMAT = ("spark.sql.streaming.offsetLog.formatVersion", "2")


@dataclass(frozen=True)
class Run:
    query_id: str
    run_id: str
    end: dict[int, int]


@dataclass(frozen=True)
class LaneStory:
    lane: Lane
    servers: str
    topic: str
    folder: Path
    versions: dict[str, str]
    first: Run
    restarted: Run
    deaf: Run
    polled: Run
    failing: Run
    second_format: Run | None
    continuous: Run
    real_time: Run | None
    restored: int
    """How many records a query has read that starts where `orders` ended."""
    observations: dict[str, list[Observation]]
    stats: dict[str, Any]
    polled_stats: dict[str, Any]
    kept: list[tuple[dict[int, int], Observation]]
    """Runs of a query of one batch each: where the topic ended, and what is kept of the batch."""
    exit_code: int
    output: str

    def of(self, run: Run) -> list[Observation]:
        return [each for each in self.observations[run.query_id] if each.run_id == run.run_id]


@dataclass(frozen=True)
class Teller:
    """Lets a lane's driver do one thing after the other, and waits for what it publishes."""

    lane: Lane
    client: SecondClient
    process: LaneProcess
    published: OffsetsTopic
    topic: str
    folder: Path

    def tell(self) -> LaneStory:
        """Start, read, idle, end, restart, go silent, fail, lose the listener, be polled."""
        process = self.process
        versions = process.do("versions") | {
            "automatic": process.do("automatic"),
            "listener": process.do("compose"),
        }
        first = self._start("orders")
        self._await_cause(first, "idle")
        first = self._more("orders", first, 7)
        process.do("stop", "orders")
        self._await_cause(first, "terminated")

        process.do("configure", *SILENT)
        restarted = self._start("orders", at_end=False)
        # Before it has reported that it is idle, its position is not known.
        self._await_cause(restarted, "refresh", placed=True)
        restarted = self._more("orders", restarted, 5)

        continuous = self._run(process.do("start_continuous", "continuous"))
        place, end = self.folder / "continuous", {self.topic: continuous.end}
        wait_for(lambda: committed(place) == end, "its epoch is committed")
        process.do("stop", "continuous")
        self._await_cause(continuous, "terminated")
        real_time = None
        if self.lane.spark in versions_with("Spark", "real-time mode"):
            sink = self.client.create(f"{self.topic}-sink", 1)
            real_time = self._run(process.do("start_real_time", "real-time", sink))
            self._await_end(real_time)
            process.do("stop", "real-time")
            self._await_cause(real_time, "terminated")

        second_format = None
        if self.lane.spark in versions_with("Spark", "checkpoint, offset log v2"):
            process.do("configure", *SECOND_FORMAT)
            second_format = self._start("orders-v2")
            process.do("stop", "orders-v2")
            self._await_cause(second_format, "terminated")
        failing = self._run(process.do("start_to_fail", "failing"))
        self._await_cause(failing, "terminated")

        process.do("deafen")
        deaf = self._more("orders", restarted, 3)
        process.do("stop", "orders")
        self._await_cause(deaf, "terminated")
        wait_for(lambda: process.do("stats")["queued"] == 0, "nothing waits")
        stats = process.do("observe_by", "poll")

        polled = self._start("orders", at_end=False)
        polled = self._more("orders", polled, 4)
        process.do("stop", "orders")
        self._await_cause(polled, "terminated")
        wait_for(lambda: process.do("stats")["queued"] == 0, "nothing waits")
        polled_stats = process.do("close")
        self.client.produce(self.topic, [b"unread"] * UNREAD)
        restored = process.do("restore", "orders")
        kept = [self._keep(), self._keep(records=6)]
        runs = (first, failing, continuous, real_time, second_format)
        queries = {run.query_id for run in runs if run is not None}
        return LaneStory(
            lane=self.lane,
            servers=self.client.bootstrap_servers,
            topic=self.topic,
            folder=self.folder,
            versions=versions,
            first=first,
            restarted=restarted,
            deaf=deaf,
            polled=polled,
            failing=failing,
            second_format=second_format,
            continuous=continuous,
            real_time=real_time,
            restored=restored,
            observations={each: self.published.observations(each) for each in queries},
            stats=stats,
            polled_stats=polled_stats,
            kept=kept,
            exit_code=process.ends(),
            output=process.output(),
        )

    def _keep(self, records: int = 0) -> tuple[dict[int, int], Observation]:
        self.client.produce(self.topic, [b"one more"] * records)
        (batch,) = self.process.do("keep", "kept")
        return self.client.end_offsets(self.topic), msgspec.convert(
            batch, Observation, strict=False
        )

    def _start(self, name: str, *, at_end: bool = True) -> Run:
        run = self._run(self.process.do("start", name))
        if at_end:
            self._await_end(run)
        return run

    def _more(self, name: str, run: Run, count: int) -> Run:
        """The run, once it has read and published `count` more records."""
        self.client.produce(self.topic, [b"%d" % number for number in range(count)])
        self.process.do("read", name)
        run = self._run({"query_id": run.query_id, "run_id": run.run_id})
        self._await_end(run)
        return run

    def _run(self, ids: dict[str, str]) -> Run:
        return Run(ids["query_id"], ids["run_id"], self.client.end_offsets(self.topic))

    def _await_end(self, run: Run) -> None:
        def remains_there(received: Sequence[Observation]) -> bool:
            (source,) = received[-1].sources if received else (None,)
            return source is not None and source.processed == {self.topic: run.end}

        self.published.until(run.query_id, remains_there, f"{run}: {self.process.output()}")

    def _await_cause(self, run: Run, cause: str, *, placed: bool = False) -> None:
        """Wait for it, with a position if it is to be `placed`."""

        def is_reported(received: Sequence[Observation]) -> bool:
            return any(
                each.cause == cause
                and each.run_id == run.run_id
                and (each.batch_id is not None or not placed)
                for each in received
            )

        self.published.until(run.query_id, is_reported, f"{cause}: {self.process.output()}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps a feature's tests in the lanes that have it, and names it in their reports."""
    for item in list(items):
        mark = item.get_closest_marker("feature")
        if mark is not None:
            item.user_properties.append(mark.args)
            if item.name.partition("[")[2].rstrip("]") not in versions_with(*mark.args):
                items.remove(item)


def committed(checkpoint: Path) -> dict[str, dict[int, int]] | None:
    """The position of a query with one source. None: nothing is committed."""
    try:
        position = read_checkpoint(CheckpointStore({}, timeout_s=30), str(checkpoint))
    except CheckpointError:
        return None
    return position.sources[0].processed if position.sources else None


@pytest.fixture(scope="module", params=LANES, ids=str)
def lane(request: pytest.FixtureRequest) -> Lane:
    result: Lane = request.param
    return result


@pytest.fixture(scope="module")
def story(
    lane: Lane,
    kafka: LocalKafka,
    second_client: SecondClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> LaneStory:
    folder = tmp_path_factory.mktemp(f"lane-{lane}")
    topic = second_client.create(f"orders-{uuid.uuid4().hex[:8]}", 2)
    second_client.produce(topic, [b"%d" % number for number in range(20)])
    published = OffsetsTopic(second_client, f"{topic}-offsets")
    with running(lane, kafka.bootstrap_servers, topic, published.name, folder) as process:
        return Teller(lane, second_client, process, published, topic, folder).tell()

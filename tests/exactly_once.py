"""`examples/exactly_once.py` as a process that is killed again and again, and what it leaves."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError

from sparklag_jobs.broker.child_process import ChildProcess
from tests.child_processes import run_to_end, running
from tests.second_client import SecondClient
from tests.spark_configuration import kafka_options, pyspark_environment
from tests.waiting import wait_for

START_S: Final = 240.0
"""Spark's own start and its first batch, on a busy machine."""

_ROOT: Final = Path(__file__).parents[1]
_FLOW_S: Final = 0.02
_LOOK_S: Final = 0.002
_BATCH_S: Final = 0.2
_SOME_BATCHES_S: Final = 0.8
_STARTUP_S: Final = 6.0
_BATCHES: Final = text(
    "SELECT q.query_id, b.batch_id, b.first_batch_id, b.is_inferred, b.generation, b.ranges"
    " FROM sparklag_batches b JOIN sparklag_queries q ON q.query_key = b.query_key"
    " ORDER BY b.query_key, b.generation, b.batch_id"
)


@dataclass
class Moments:
    starting: int = 0
    """No batch was written by that run."""
    between: int = 0
    unwritten: int = 0
    """A batch was planned, and nothing of it is there."""
    unnoted: int = 0
    """A batch was written, and Spark has not noted that it is complete."""
    skipped: int = 0
    """Batches that Spark then ran again."""
    checkpoints_deleted: int = 0

    def __str__(self) -> str:
        return ", ".join(
            f"{name.replace('_', ' ')} {count}" for name, count in asdict(self).items()
        )


@dataclass
class ExactlyOnce:
    client: SecondClient
    topic: str
    database: str
    folder: Path
    choices: random.Random
    moments: Moments = field(default_factory=Moments)

    def __post_init__(self) -> None:
        self.checkpoint = self.folder / "checkpoint"
        self._offsets = self.checkpoint / "offsets"
        self._commits = self.checkpoint / "commits"
        self._unnoted: int | None = None
        """The batch that will run again, if its checkpoint stays."""

    def survive(self, kills: int) -> None:
        """Kills it often while records flow, deletes checkpoints, and lets it read the rest."""
        with _records_flow(self.client, self.topic):
            for number in range(kills):
                with running(self._process()) as process:
                    if number % 6 == 4:
                        time.sleep(self.choices.uniform(0.0, _STARTUP_S))
                    else:
                        self._await_some_batches(process)
                self._note_moment()
        self.read_all()
        self._note_skipped()

    def read_all(self) -> None:
        run_to_end(self._process("--available-now"), START_S)

    def check(self) -> None:
        """Every record is there once, and each query's offsets follow each other."""
        ends = self.client.end_offsets(self.topic)
        with self._connection() as connection:
            counted = connection.execute(
                text(
                    "SELECT partition_id, COUNT(*), COUNT(DISTINCT record_offset),"
                    " MAX(record_offset) + 1 FROM records GROUP BY partition_id"
                )
            )
            result = {number: counts for number, *counts in counted}
            batches = connection.execute(_BATCHES).all()
        assert result == {number: [end, end, end] for number, end in ends.items()}
        assert sum(ends.values()) > 0
        for _, of_query in groupby(batches, key=lambda row: row.query_id):
            kept = list(of_query)
            assert not any(row.is_inferred for row in kept)
            assert {row.generation for row in kept} == {0}
            assert kept[0].batch_id == 0
            for row, after in pairwise(kept):
                assert after.first_batch_id == after.batch_id == row.batch_id + 1
                assert _edges(after.ranges)[0] == _edges(row.ranges)[1]
        assert len({row.query_id for row in batches}) <= self.moments.checkpoints_deleted + 1

    def _await_some_batches(self, process: ChildProcess) -> None:
        """Returns just after a batch is written, as the next is planned, or in between."""
        with self._connection() as connection:
            before = _count(connection)

            def is_written(number: int) -> bool:
                assert process.is_alive(), process.describe_end()
                return _count(connection) >= before + number

            wait_for(lambda: is_written(1), "a batch is written", START_S)
            _watch(partial(is_written, self.choices.randint(1, 4)))
        moment = self.choices.randrange(3)
        if moment == 1:
            _watch(lambda: _newest(self._offsets) != _newest(self._commits))
        if moment > 0:
            time.sleep(self.choices.uniform(0.0, _BATCH_S if moment == 1 else _SOME_BATCHES_S))

    def _note_moment(self) -> None:
        self._note_skipped()
        planned, noted = _newest(self._offsets), _newest(self._commits)
        written = self._newest_written()
        is_deleted = self.choices.random() < 1 / 3
        if planned is None:
            self.moments.starting += 1
        elif planned == noted:
            self.moments.between += 1
        elif planned != written:
            self.moments.unwritten += 1
        else:
            self.moments.unnoted += 1
            self._unnoted = planned
        if is_deleted:
            self.moments.checkpoints_deleted += 1
            self._unnoted = None
            shutil.rmtree(self.checkpoint, ignore_errors=True)

    def _note_skipped(self) -> None:
        noted = _newest(self._commits)
        if self._unnoted is not None and noted is not None and noted >= self._unnoted:
            self.moments.skipped += 1
            self._unnoted = None

    def _newest_written(self) -> int | None:
        metadata = self.checkpoint / "metadata"
        query_id = json.loads(metadata.read_text())["id"] if metadata.exists() else None
        with self._connection() as connection:
            if not _count(connection):
                return None
            batches = connection.execute(_BATCHES).all()
        return max((row.batch_id for row in batches if row.query_id == query_id), default=None)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        engine = create_engine(self.database, isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                yield connection
        finally:
            engine.dispose()

    def _process(self, *options: str) -> ChildProcess:
        return ChildProcess(
            "the example",
            [
                sys.executable, str(_ROOT / "examples" / "exactly_once.py"),
                "--bootstrap-servers", self.client.bootstrap_servers,
                "--topic", self.topic,
                "--checkpoint", str(self.checkpoint),
                "--database", self.database,
                *options,
            ],
            log_path=self.folder / "driver.log",
            environment={
                **{k: v for k, v in os.environ.items() if not k.startswith("SPARKLAG_")},
                **pyspark_environment("--master", "local[2]", *kafka_options()),
            },
            directory=self.folder,
        )  # fmt: skip


@contextmanager
def _records_flow(client: SecondClient, topic: str) -> Iterator[None]:
    is_over = threading.Event()

    def produce() -> None:
        while not is_over.wait(_FLOW_S):
            client.produce(topic, [b"a record"] * 5)

    producing = threading.Thread(target=produce)
    producing.start()
    try:
        yield
    finally:
        is_over.set()
        producing.join()


def _watch(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


def _count(connection: Connection) -> int:
    try:
        return int(connection.execute(text("SELECT COUNT(*) FROM sparklag_batches")).scalar_one())
    except DBAPIError:
        # It has not made the tables yet.
        return 0


def _newest(log: Path) -> int | None:
    names = (file.name for file in log.iterdir()) if log.is_dir() else ()
    return max((int(name) for name in names if name.isdigit()), default=None)


def _edges(ranges: str) -> tuple[dict[int, int], dict[int, int]]:
    ((_, _, _, _, partitions, *_),) = json.loads(ranges)
    return (
        {number: began for number, began, _ in partitions},
        {number: until for number, _, until in partitions},
    )

"""The job as a process, killed and started again on a real broker; the report on what it kept."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from sparklag_jobs.broker.child_process import ChildProcess
from sparklag_schemas import LagEvent, RegistrySettings, Settings, decode_observation, encode
from sparklag_schemas.avro.formats import MessageFormats
from tests.child_processes import run_to_end, running
from tests.commands import run, succeed
from tests.local_kafka import LocalKafka
from tests.messages import lag_event
from tests.processes import ignored_signals, in_background
from tests.schema_registry import SchemaRegistryServer
from tests.second_client import SecondClient
from tests.waiting import wait_until_up

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

SEED = 41
QUERIES = 3
MINUTES = 90
MINUTE_MS = 60_000
START_MS = 1_790_035_200_000
START_TIMEOUT_S = 300.0

_Rows = dict[str, list[dict[str, Any]]]


def _events(minutes: range) -> list[LagEvent]:
    """An event every 20 s; query 2 misses its target in the first ten minutes."""
    return [
        lag_event(
            event_id=f"{query}-{number}",
            query_id=f"id-{query}",
            query=f"query-<{query}>",
            status="WARN" if query == 2 and number < 30 else "OK",
            max_time_lag_s=400.0 if query == 2 and number < 30 else 1.0,
            measured_at=START_MS + number * 20_000,
            observed_at=START_MS + number * 20_000,
        )
        for number in range(minutes.start * 3, minutes.stop * 3)
        for query in range(QUERIES)
    ]


@dataclass(frozen=True)
class _Kept:
    """The history after all the kills, and what was written to the topic."""

    folder: Path
    kills: int
    events: list[LagEvent]
    log: str
    observed: set[str | None]
    signalled: int | None


async def _values(events: list[LagEvent], registry: str, topic: str) -> list[bytes]:
    settings = Settings(format="avro", registry=RegistrySettings(url=registry))
    avro = MessageFormats(settings).writer(LagEvent, topic)
    return [
        await avro.encode(event) if number % 2 else encode(event)
        for number, event in enumerate(events)
    ]


def _job(kafka: LocalKafka, registry: str, folder: Path, *more: str) -> ChildProcess:
    command = [sys.executable, "-m", "sparklag_service", "history", "run"]
    command += ["--bootstrap-servers", kafka.bootstrap_servers, "--lag-topic", folder.name]
    command += ["--output", str(folder / "lag-history"), "--lateness", "1 minute", *more]
    return ChildProcess(
        "the history",
        in_background(command),
        log_path=folder / "log",
        environment={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",  # they live for seconds
            "SPARKLAG_OFFSETS_TOPIC": f"{folder.name}-offsets",
            "SPARKLAG_TOPIC_REPLICATION_FACTOR": "1",
            "SPARKLAG_REGISTRY__URL": registry,
        },
        directory=folder,
    )


def _commits(folder: Path) -> int:
    checkpoints = folder / "lag-history" / "_checkpoints"
    return len(list(checkpoints.glob("*/commits/[0-9]*")))


def _has_commits(folder: Path, count: int) -> bool:
    return _commits(folder) >= count


@pytest.fixture(
    scope="module", params=[1, pytest.param(3, marks=pytest.mark.soak)], ids="{} kills".format
)
def kept(
    request: pytest.FixtureRequest,
    kafka: LocalKafka,
    registry: SchemaRegistryServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> _Kept:
    """Killed in the middle of batches, at moments that differ; at last it takes what is left."""
    start = partial(_job, kafka, registry.url)
    kills: int = request.param
    # Its name is the topic's.
    folder = tmp_path_factory.mktemp(f"history-of-{kills}-kills", numbered=False)
    client = SecondClient(kafka.bootstrap_servers)
    topic = client.create(folder.name, 3)
    chance = random.Random(SEED)
    events: list[LagEvent] = []
    for kill in range(kills):
        new = _events(range(kill * MINUTES // kills, (kill + 1) * MINUTES // kills))
        events += new
        values = asyncio.run(_values(new, registry.url, topic))
        half = len(new) // 2
        client.produce(topic, values[:half])
        triggers = ("--trigger", "200 milliseconds", "--roll-up-trigger", "300 milliseconds")
        with running(start(folder, *triggers)) as job:
            wanted = _commits(folder) + chance.randrange(1, 6)
            wait_until_up([job], partial(_has_commits, folder, wanted), START_TIMEOUT_S)
            client.produce(topic, [b"not one of ours", *values[half:]])
            # Anywhere in what the rest of it takes: planned, written, committed.
            time.sleep(chance.random() * 2)
    signalled = _signalled(start(folder))
    log = run_to_end(start(folder, "--once"), START_TIMEOUT_S)
    observed = {
        decode_observation(message.value() or b"").query
        for message in client.read_all(f"{topic}-offsets")
    }
    return _Kept(folder, kills, events, log, observed, signalled)


def _signalled(job: ChildProcess) -> int | None:
    """The exit code after a SIGTERM that comes while all three queries run."""

    with running(job):
        last = "query lag-history-hours runs"
        wait_until_up([job], lambda: job.has_logged(last), START_TIMEOUT_S)
        assert signal.SIGINT in ignored_signals(job.pid)  # PySpark handles it
        job.send_signal(signal.SIGTERM)
        assert job.wait(120), "it does not end"
    return job.exit_code


@pytest.fixture(scope="module")
def tables(kept: _Kept) -> _Rows:
    program = (
        "import json, sys\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[2]')"
        ".config('spark.sql.session.timeZone', 'UTC').getOrCreate()\n"
        "read = lambda name, *columns: [row.asDict() for row in"
        " spark.read.parquet(f'{sys.argv[1]}/{name}').selectExpr(*columns).collect()]\n"
        "start = 'unix_millis(window_start) AS start_ms'\n"
        "print(json.dumps({'partitions': read('partitions', 'event_id', 'partition'),"
        " 'minutes': read('minutes', 'query_id', start, 'events', 'known_s'),"
        " 'hours': read('hours', 'query_id', start, 'events', 'known_s')}))\n"
    )
    output = succeed(sys.executable, "-c", program, kept.folder / "lag-history")
    return dict(json.loads(output.splitlines()[-1]))


def test_after_every_kill_each_event_is_kept_exactly_once(kept: _Kept, tables: _Rows) -> None:
    result = Counter(row["event_id"] for row in tables["partitions"])
    assert result == Counter(event.event_id for event in kept.events)


def test_after_every_kill_each_window_that_is_over_is_rolled_up_exactly_once(tables: _Rows) -> None:
    minutes = Counter((row["query_id"], row["start_ms"]) for row in tables["minutes"])
    # The newest event is 20 s before the end: with a minute of lateness, two are not over.
    expected = {
        (f"id-{query}", START_MS + number * MINUTE_MS)
        for query in range(QUERIES)
        for number in range(MINUTES - 2)
    }
    assert minutes == dict.fromkeys(expected, 1)
    assert {(row["events"], row["known_s"]) for row in tables["minutes"]} == {(3, 60.0)}
    hours = Counter((row["query_id"], row["start_ms"]) for row in tables["hours"])
    whole = (MINUTES - 2) // 60
    assert hours == {
        (f"id-{query}", START_MS + number * 3_600_000): 1
        for query in range(QUERIES)
        for number in range(whole)
    }


def test_another_message_is_reported_with_its_place_and_the_job_is_observed(kept: _Kept) -> None:
    assert f"values that are no lag event are left out: {kept.folder.name} " in kept.log
    assert "lag-history" in kept.observed
    # Each process meets it for the first time, once.
    assert kept.log.count("are lag events") <= kept.kills + 2


def test_a_signal_ends_it_well(kept: _Kept) -> None:
    assert kept.signalled == 0


def _report(kept: _Kept, *arguments: str) -> CompletedProcess[str]:
    return run(sys.executable, "-m", "sparklag_service", "report", *arguments, cwd=kept.folder)


def test_the_report_reports_who_missed_the_target_and_when(kept: _Kept) -> None:
    done = _report(kept, "--since", "2026-09-21", "--until", "2026-09-23", "--format", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    worst, *others = report["queries"]
    assert worst["query"] == "query-<2>"
    (episode,) = worst["episodes"]
    assert (episode["from"], episode["to"]) == (START_MS, START_MS + 10 * MINUTE_MS)
    assert (episode["duration_s"], episode["max_time_lag_s"]) == (600.0, 400.0)
    missed_s = worst["known_s"] - worst["within_target_s"]
    assert missed_s == pytest.approx(600)
    assert [(one["share_within_target"], one["episodes"]) for one in others] == [(1.0, [])] * 2


def test_a_time_in_which_there_is_nothing_is_one_line_and_exit_code_1(kept: _Kept) -> None:
    done = _report(kept, "--since", "2020-01-01", "--until", "2020-01-02")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "sparklag: nothing in lag-history from 2020-01-01 to 2020-01-02" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["--table", "elsewhere"],
            "sparklag: no parquet table minutes in elsewhere: run"
            " `sparklag history run --output elsewhere` first\n",
        ),
        (["--since", "soon"], "sparklag: --since, --until: 'soon' is neither epoch milliseconds"),
        (["--since", "1h", "--until", "2h"], "sparklag: --since 1h is not before --until 2h\n"),
    ],
)
def test_without_history_or_time_it_exits_2(kept: _Kept, arguments: list[str], line: str) -> None:
    done = _report(kept, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1

"""How soon everything answers: an import, the hook of SPARKLAG_AUTO, `--help`, `observe()`, and a
service with an empty view.

`restart` has a service with 1,000 queries. Each is beside the same without sparklag where there is
one: PySpark's import, a bare interpreter, PySpark's own `addListener`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from benchmarks.comparison import Row, in_turn, say, within
from benchmarks.listener_cost import StockListener
from benchmarks.quiet_spark import quiet_spark
from benchmarks.service_process import service_process, wait_for
from sparklag_kafka.access import quiet_client_logs
from sparklag_listener import observe
from tests.local_kafka import LocalKafka

_ROUNDS = 9
_HELP = "from sparklag_service.cli import run; import sys; sys.argv[1:] = ['--help']; run()"


def run() -> list[Row]:
    """A row for each."""
    quiet_client_logs()
    say("start_times: processes")
    driver = "import pyspark.sql"
    imported, before = in_turn(_ROUNDS, _process(f"{driver}, sparklag_listener"), _process(driver))
    own_ms = [one - other for one, other in zip(imported, before, strict=True)]
    hooked, unhooked = in_turn(_ROUNDS, _process("", SPARKLAG_AUTO="1"), _process(""))
    added_ms = [one - other for one, other in zip(hooked, unhooked, strict=True)]
    helped, bare = in_turn(_ROUNDS, _process(_HELP), _process(""))
    with LocalKafka() as kafka, quiet_spark() as spark:
        servers = kafka.bootstrap_servers
        say("start_times: observe()")
        observed, added = in_turn(_ROUNDS, lambda: _observe(spark, servers), lambda: _add(spark))
        say("start_times: the service")
        # The topics are there from the second time on.
        ready = [_ready_ms(servers) for _ in range(_ROUNDS)]
    return [
        within("import sparklag_listener", own_ms, "PySpark's", before, 100),
        within("SPARKLAG_AUTO=1 without Spark", added_ms, "a bare interpreter", unhooked, 50),
        within("sparklag --help, the whole process", helped, "a bare interpreter", bare, 300),
        within("the first observe() of a process", observed[:1], "PySpark's", added[:1], 150),
        within("observe(), the JVM warm", observed[2:], "PySpark's addListener", added[2:], 150),
        within("service → ready, an empty view", ready[1:], "a bare interpreter", bare, 2_000),
    ]


def _process(program: str, **variables: str) -> Callable[[], list[float]]:
    command, environment = [sys.executable, "-c", program], {**os.environ, **variables}

    def sample() -> list[float]:
        with _timed() as took_ms:
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        return took_ms

    return sample


def _observe(spark: SparkSession, servers: str) -> list[float]:
    with _timed() as took_ms:
        handle = observe(spark, servers)
    handle.close()
    return took_ms


def _add(spark: SparkSession) -> list[float]:
    listener = StockListener()
    with _timed() as took_ms:
        spark.streams.addListener(listener)
    spark.streams.removeListener(listener)
    return took_ms


def _ready_ms(servers: str) -> float:
    began_s = time.perf_counter()
    with service_process(servers, publish_interval_s=1) as service:
        wait_for(service.health, pause_s=0.02)
        return (time.perf_counter() - began_s) * 1e3


@contextmanager
def _timed() -> Iterator[list[float]]:
    """What is done in here, in milliseconds."""
    took_ms: list[float] = []
    began_s = time.perf_counter()
    yield took_ms
    took_ms.append((time.perf_counter() - began_s) * 1e3)

"""A process whose streaming queries run until a signal comes: its session, its signals, its end."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

STOP_POLL_S: Final = 0.5

log = logging.getLogger(__name__)

# What a small local session of ours has in any case.
_LOCAL: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def build_session(
    name: str,
    *,
    settings: Mapping[str, str],
    local: Mapping[str, str],
    jars: Callable[[], Sequence[Path]],
    ui: bool = False,
    log_level: str = "WARN",
) -> SparkSession:
    """A session with `settings`; where it is not under spark-submit, with `local` and `jars` too.

    Raises what `jars` raises.
    """
    told = {"spark.sql.session.timeZone": "UTC", **settings}
    if not is_submitted():
        told |= _LOCAL
        told |= {"spark.ui.enabled": str(ui).lower()}
        told |= {"spark.jars": ",".join(str(jar) for jar in jars()), **local}
    builder = SparkSession.builder.appName(name)
    for key, value in told.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(log_level)
    return spark


def is_submitted() -> bool:
    """Whether spark-submit started this process: the JVM, its jars and its master are there."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


class Signals:
    """Remembers SIGINT and SIGTERM: raising out of a call to the JVM would break its connection."""

    def __init__(self) -> None:
        self.came = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._remember)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.came = True


def await_end(query: StreamingQuery, signals: Signals) -> None:
    """Return when the query has ended, or a signal has come.

    Raises StreamingQueryException where the query has failed.
    """
    await_any_end([query], signals)


def await_any_end(
    queries: Sequence[StreamingQuery],
    signals: Signals,
    meanwhile: Callable[[], object] | None = None,
) -> None:
    """The same of several: return when the first has ended. `meanwhile` is called all the time."""
    first = queries[0]
    # PySpark's stubs know whole seconds only, its code takes parts of one too.
    while not signals.came and not first.awaitTermination(STOP_POLL_S):  # type: ignore[arg-type]
        for query in queries[1:]:
            if not query.isActive:
                query.awaitTermination()  # raises what it failed with
                return
        if meanwhile is not None:
            meanwhile()


def stop_query(query: StreamingQuery, signals: Signals) -> None:
    """Stop it. After a signal, a batch that goes on for longer than Spark waits
    (`spark.sql.streaming.stopTimeout`) is no failure: the session's end cuts it off."""
    try:
        query.stop()
    except Py4JJavaError as error:
        waited = (
            error.java_exception.getClass().getName() == "java.util.concurrent.TimeoutException"
        )
        if not (waited and signals.came):
            raise
        log.warning("query %s: its batch is cut off, the next start runs it again", query.name)

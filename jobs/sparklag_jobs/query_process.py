"""A process that runs streaming queries until a signal: its session, signals and shutdown."""

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

from sparklag_jobs.broker.maven import spark_kafka_jars
from sparklag_schemas.runtime.tasks import ending_signals

STOP_POLL_S: Final = 0.5

log = logging.getLogger(__name__)

_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A small JVM: on two cores the optimising compiler costs more time than it saves.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def build_session(
    name: str,
    *,
    settings: Mapping[str, str],
    local: Mapping[str, str],
    jars: Callable[[], Sequence[Path]] = tuple,
    reads_kafka: bool = True,
    log_level: str = "WARN",
) -> SparkSession:
    """A session with `settings`. Without spark-submit it also has `local`, `jars` and, if it reads
    Kafka, the connector. Raises JavaMissing, DownloadFailed, and errors of `jars`."""
    options = {"spark.sql.session.timeZone": "UTC", **settings}
    # spark-submit has started the JVM already, with its jars and its master.
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        options |= {**_LOCAL, **local}
        if added := [*(spark_kafka_jars() if reads_kafka else ()), *jars()]:
            options["spark.jars"] = ",".join(map(str, added))
    builder = SparkSession.builder.appName(name)
    for key, value in options.items():
        builder = builder.config(key, value)
    on_interrupt = signal.getsignal(signal.SIGINT)
    spark = builder.getOrCreate()
    if on_interrupt is signal.SIG_IGN:
        signal.signal(signal.SIGINT, on_interrupt)  # PySpark handles an ignored SIGINT too
    spark.sparkContext.setLogLevel(log_level)
    return spark


class StopSignals:
    """Records SIGINT and SIGTERM: an exception in a call to the JVM breaks its connection."""

    def __init__(self) -> None:
        self.received = False
        for number in ending_signals(signal.SIGINT):
            signal.signal(number, self._record)

    def _record(self, number: int, frame: FrameType | None) -> None:
        self.received = True


def await_end(
    queries: Sequence[StreamingQuery],
    signals: StopSignals,
    poll: Callable[[], object] = lambda: None,
) -> None:
    """Return when the first query has ended, or on a signal; call `poll` meanwhile.

    Raises StreamingQueryException if a query has failed.
    """
    first, *others = queries
    # PySpark accepts fractions of a second; its stubs do not.
    while not signals.received and not first.awaitTermination(STOP_POLL_S):  # type: ignore[arg-type]
        for query in others:
            if not query.isActive:
                query.awaitTermination()  # raises the reason of a failure
                return
        poll()


def stop_query(query: StreamingQuery, signals: StopSignals) -> None:
    """Stop a query. After a signal, a batch that exceeds `spark.sql.streaming.stopTimeout` is not
    an error: the end of the session aborts it."""
    try:
        query.stop()
    except Py4JJavaError as error:
        kind = error.java_exception.getClass().getName()
        if kind != "java.util.concurrent.TimeoutException" or not signals.received:
            raise
        log.warning("query %s: its batch is cut off, the next start runs it again", query.name)

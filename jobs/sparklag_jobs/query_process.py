"""A process that runs streaming queries until a signal comes: session, signals, end."""

from __future__ import annotations

import contextlib
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

from sparklag_jobs.broker.class_data import spark_class_data
from sparklag_jobs.broker.maven import spark_kafka_jars
from sparklag_jobs.errors import JavaMissing
from sparklag_schemas.runtime.tasks import ending_signals

STOP_POLL_S: Final = 0.5

log = logging.getLogger(__name__)

_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
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
    """A session with `settings`; without spark-submit, with `local`, `jars` and, where
    it reads Kafka, the connector too.

    Raises JavaMissing, DownloadFailed, and what `jars` raises.
    """
    options = {"spark.sql.session.timeZone": "UTC", **settings}
    # spark-submit has started the JVM, with its jars and its master.
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        options |= {**_LOCAL, **local}
        added = [*jars()]
        if reads_kafka:
            connector = spark_kafka_jars()
            # The class path replaces that of spark-defaults.conf: only for what it brings.
            if _class_data(connector):
                options |= connector_options(connector)
            else:
                added = [*connector, *added]
        if added:
            options["spark.jars"] = ",".join(map(str, added))
    builder = SparkSession.builder.appName(name)
    for key, value in options.items():
        builder = builder.config(key, value)
    on_interrupt = signal.getsignal(signal.SIGINT)
    spark = builder.getOrCreate()
    if on_interrupt is signal.SIG_IGN:
        signal.signal(signal.SIGINT, on_interrupt)  # PySpark handles it even then
    spark.sparkContext.setLogLevel(log_level)
    return spark


def connector_options(connector: Sequence[Path]) -> dict[str, str]:
    """Spark's, of a driver with these jars on its class path, started from the archive of its class
    data where there is one."""
    options = {"spark.driver.extraClassPath": ":".join(map(str, connector))}
    if class_data := _class_data(connector):
        quoted = " ".join(f'"{option}"' for option in class_data)
        options["spark.driver.defaultJavaOptions"] = quoted
    return options


def _class_data(connector: Sequence[Path]) -> tuple[str, ...]:
    # Spark itself reports what it misses.
    with contextlib.suppress(JavaMissing):
        return spark_class_data(connector).options()
    return ()


class StopSignals:
    """Records SIGINT and SIGTERM: raising out of a call to the JVM would break its connection."""

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
    """Return when the first query has ended, or a signal has come; `poll` is called meanwhile.

    Raises StreamingQueryException where a query has failed.
    """
    first, *others = queries
    # PySpark's stubs take whole seconds only, its code takes fractions too.
    while not signals.received and not first.awaitTermination(STOP_POLL_S):  # type: ignore[arg-type]
        for query in others:
            if not query.isActive:
                query.awaitTermination()  # raises the reason of a failure
                return
        poll()


def stop_query(query: StreamingQuery, signals: StopSignals) -> None:
    """Stop it. After a signal, a batch that takes longer than `spark.sql.streaming.stopTimeout` is
    no failure: the end of the session cuts it off."""
    try:
        query.stop()
    except Py4JJavaError as error:
        kind = error.java_exception.getClass().getName()
        if kind != "java.util.concurrent.TimeoutException" or not signals.received:
            raise
        log.warning("query %s: its batch is cut off, the next start runs it again", query.name)

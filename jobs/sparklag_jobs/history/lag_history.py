"""The history of lag: `consumer-lag` in permanent tables, with roll-ups by minute and by hour.

sparklag history run --bootstrap-servers localhost:9092 --output history
spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 lag_history.py ...
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparklag_jobs import query_process
from sparklag_jobs.arguments import CommandParser
from sparklag_jobs.broker.maven import spark_avro_jars, table_format_jars
from sparklag_jobs.errors import JobSettingWrong
from sparklag_jobs.history import partition_rows, rollups
from sparklag_jobs.history.events import (
    BatchLog,
    WriterSchemas,
    kafka_options,
    look_up,
    unknown_schema_id,
)
from sparklag_jobs.history.tables import FORMATS, Tables, open_tables
from sparklag_jobs.query_process import StopSignals, await_end, stop_query
from sparklag_listener import observe
from sparklag_schemas import ResolvedSettings, Settings, SparklagError, load_settings
from sparklag_schemas.errors import RegistryError, SettingsError

_INTERVAL: Final = re.compile(r"\d+ (millisecond|second|minute|hour|day)s?")
_RETRY_S: Final = 2.0
_ROLL_UPS: Final = tuple(rollups.STEPS_S)

log = logging.getLogger(__name__)


def build_session(tables: Tables, *, avro: bool = False) -> SparkSession:
    """A local session with the packages for the tables and for Avro values; under spark-submit, the
    given session. Raises JavaMissing, DownloadFailed."""
    return query_process.build_session(
        "lag-history",
        settings={
            "spark.sql.adaptive.enabled": "false",  # streams do not use it, and warn
            "spark.sql.streaming.stopTimeout": "30s",
            # Keeps a file for each day open: otherwise each batch would be sorted by day.
            "spark.sql.maxConcurrentOutputFileWriters": "32",
            **tables.session_settings(),
        },
        local={
            "spark.master": "local[*]",
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": "4",
            # Pauses do not matter; on few cores a concurrent collector costs more.
            "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        },
        jars=lambda: [*table_format_jars(tables.format), *(spark_avro_jars() if avro else ())],
    )


def run(
    spark: SparkSession, settings: ResolvedSettings, tables: Tables, arguments: argparse.Namespace
) -> None:
    """Write the history until a query fails, or on SIGINT or SIGTERM; with `--once`, until all
    events are processed. Raises JobSettingWrong, SettingsError, and Spark's errors."""
    signals = StopSignals()
    partition_rows.check_patterns(spark, settings.thresholds)
    options = kafka_options(settings.access)
    create_tables(spark, tables)
    handle = observe(spark, settings.bootstrap_servers, config=arguments.config)
    avro = WriterSchemas(has_registry=settings.registry.url is not None)
    rolling = [
        rollups.roll_ups(spark, tables, name, lateness=arguments.lateness) for name in _ROLL_UPS
    ]
    try:
        while not signals.received:
            ingesting = partition_rows.ingest(
                spark,
                tables,
                kafka_options=options,
                lag_topic=settings.lag_topic,
                thresholds=settings.thresholds,
                avro=avro,
            )
            try:
                if arguments.once:
                    for writer in (ingesting, *rolling):
                        if not signals.received:
                            _run([writer.trigger(availableNow=True).start], signals)
                else:
                    starts = [ingesting.trigger(processingTime=arguments.trigger).start]
                    starts += [
                        writer.trigger(processingTime=arguments.roll_up_trigger).start
                        for writer in rolling
                    ]
                    _run(starts, signals)
                return
            except StreamingQueryException as error:
                schema_id = unknown_schema_id(error)
                if schema_id is None:
                    raise
                avro = _await_schema(avro, schema_id, settings, signals)
    finally:
        handle.close()


def _run(starts: Sequence[Callable[[], StreamingQuery]], signals: StopSignals) -> None:
    """Runs queries until one ends or a signal arrives. Stops them in reverse order."""
    queries: list[StreamingQuery] = []
    logs: list[BatchLog] = []

    def update_logs() -> None:
        for batch_log in logs:
            batch_log.update()

    try:
        for start in starts:
            query = start()
            log.info("query %s runs, id %s", query.name, query.id)
            queries.append(query)
            logs.append(BatchLog(query))
        await_end(queries, signals, update_logs)
    finally:
        for query in reversed(queries):
            stop_query(query, signals)
        update_logs()
        log.info("%s ended", ", ".join(str(query.name) for query in queries))


def _await_schema(
    avro: WriterSchemas, schema_id: int, settings: ResolvedSettings, signals: StopSignals
) -> WriterSchemas:
    is_logged = False
    while not signals.received:
        try:
            return look_up(avro, schema_id, settings.registry)
        except RegistryError as error:
            if not is_logged:
                is_logged = True
                log.warning("waiting to look up schema id %d: %s", schema_id, error)
            time.sleep(_RETRY_S)
    return avro


def create_tables(spark: SparkSession, tables: Tables) -> None:
    tables.create(spark, partition_rows.NAME, partition_rows.COLUMNS, "day")
    for name in _ROLL_UPS:
        tables.create(spark, name, rollups.TABLE_COLUMNS, "day", "batch")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(
        "history run",
        "Keep the history of lag in tables, until Ctrl-C.\n\nExit code 0 when ended by a signal or"
        " done; 1 when a query failed; 2 for a wrong argument or setting.",
    )
    parser.add_argument("--bootstrap-servers", help="Kafka, as host:port[,host:port].")
    parser.add_argument("--lag-topic", help="Topic of the lag events. [default: setting lag_topic]")
    parser.add_argument("--output", default="lag-history", help="Folder or URI of the tables.")
    parser.add_argument("--format", choices=FORMATS, default="parquet", help="Format of these.")
    parser.add_argument(
        "--trigger", default="1 minute", help="Time between the starts of two batches."
    )
    parser.add_argument(
        "--roll-up-trigger",
        default="10 minutes",
        help="The same of the roll-ups, of which each batch writes files.",
    )
    parser.add_argument(
        "--once", action="store_true", help="Process the events in the topic, then exit."
    )
    parser.add_argument(
        "--lateness", default="5 minutes", help="How late an event may be and still be rolled up."
    )
    parser.add_argument(
        "--config", type=Path, help="Settings file. [default: sparklag.toml, if there]"
    )
    return parser.parse_args(argv)


def _check_intervals(arguments: argparse.Namespace) -> None:
    for option in ("lateness", "trigger", "roll-up-trigger"):
        text = getattr(arguments, option.replace("-", "_"))
        if not _INTERVAL.fullmatch(text):
            raise JobSettingWrong(
                f"--{option} {text!r}: takes a number and a unit, as 30 seconds, 5 minutes, 1 hour"
            )


def _configure_logs(settings: Settings) -> None:
    # A cluster may have only the packages of a driver.
    try:
        from sparklag_schemas.runtime.log_output import configure_logs
    except ImportError:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    else:
        configure_logs(settings)
    logging.getLogger("py4j").setLevel(logging.WARNING)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job and returns the exit code: 0 after a signal or at the end, 1 if a query failed,
    2 for a wrong argument or setting."""
    arguments = _arguments(argv)
    try:
        _check_intervals(arguments)
        overrides = {name: getattr(arguments, name) for name in ("bootstrap_servers", "lag_topic")}
        settings = load_settings(config=arguments.config, overrides=overrides).resolved()
        _configure_logs(settings)
        tables = open_tables(arguments.format, arguments.output)
        spark = build_session(tables, avro=settings.registry.url is not None)
        try:
            run(spark, settings, tables, arguments)
        finally:
            spark.stop()
    except (SettingsError, JobSettingWrong) as error:
        sys.stderr.write(f"sparklag: {error}\n")
        return 2
    except (SparklagError, PySparkException, Py4JJavaError) as error:
        # The rest of the message is the plan, a page long.
        message = str(error).partition("=== Streaming Query ===")[0].strip()
        sys.stderr.write(f"sparklag: {message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

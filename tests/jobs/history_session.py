"""A program: one Spark session that does what the tests of the history look at.

A process of its own, because other tests' sessions know neither Kafka nor Delta.

python -m tests.jobs.history_session BOOTSTRAP_SERVERS FOLDER: FOLDER/output.json is the answer.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from sparklag_jobs import query_process
from sparklag_jobs.broker.maven import spark_avro_jars, table_format_jars
from sparklag_jobs.errors import JobSettingWrong
from sparklag_jobs.history import partition_rows, rollups
from sparklag_jobs.history.events import BatchLog, count_unreadable, events, kafka_options
from sparklag_jobs.history.lag_history import create_tables
from sparklag_jobs.history.partition_rows import check_patterns, ingest
from sparklag_jobs.history.tables import FORMATS, Tables, open_tables
from sparklag_schemas import Settings, Thresholds, encode
from sparklag_schemas.settings import ClusterAccess
from tests.jobs import history_cases as cases
from tests.second_client import SecondClient

LATENESS = "1 minute"


def main(servers: str, folder: Path) -> None:
    tables = {name: open_tables(name, str(folder / name)) for name in FORMATS}
    spark = session_for(list(tables.values()))
    answer: dict[str, Any] = {
        "values": _values(spark),
        "targets": _targets(spark),
        "unknown_schema": _unknown_schema(spark),
        "refused": _refused(spark),
        "rolled": _rolled(spark),
        "formats": {name: _ingest_twice(spark, servers, one) for name, one in tables.items()},
    }
    (folder / "output.json").write_text(json.dumps(answer, default=str))
    spark.stop()


def session_for(tables: Sequence[Tables]) -> SparkSession:
    settings = {"spark.sql.adaptive.enabled": "false"}
    for one in tables:
        settings |= one.session_settings()
    jars = [*spark_avro_jars(), *(jar for one in tables for jar in table_format_jars(one.format))]
    return query_process.build_session(
        "history-session", settings=settings, local={"spark.master": "local[2]"}, jars=lambda: jars
    )


def as_dicts(rows: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in rows.collect()]


def _kafka_rows(spark: SparkSession, values: Sequence[bytes | None]) -> DataFrame:
    rows = [("consumer-lag", 0, offset, value) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, "topic string, partition int, offset bigint, value binary")


def _values(spark: SparkSession) -> dict[str, Any]:
    values = [value for value, _ in cases.VALUES]
    result = count_unreadable(events(_kafka_rows(spark, values), cases.AVRO))
    return {
        "unreadable": as_dicts(result.select("offset", "unreadable")),
        "rows": as_dicts(partition_rows.partition_rows(result, {})),
    }


def _targets(spark: SparkSession) -> list[dict[str, Any]]:
    values = [encode(event) for event, _ in cases.TARGETS]
    result = count_unreadable(events(_kafka_rows(spark, values)))
    rows = partition_rows.partition_rows(result, cases.THRESHOLDS)
    return as_dicts(rows.where("first").select("event_id", "within_target"))


def _unknown_schema(spark: SparkSession) -> str:
    unknown = struct.pack(">bI", 0, 4_000_000_000) + b"\x02"
    try:
        events(_kafka_rows(spark, [unknown]), cases.AVRO).collect()
    except PySparkException as error:
        return str(error)
    return ""


def _refused(spark: SparkSession) -> str:
    try:
        # A name is P<name> to Python only.
        check_patterns(spark, cases.THRESHOLDS | {"(?P<name>x)": Thresholds()})
    except JobSettingWrong as error:
        return str(error)
    return ""


def _rolled(spark: SparkSession) -> list[dict[str, Any]]:
    result = events(_kafka_rows(spark, [encode(event) for event in cases.course()]))
    rows = partition_rows.partition_rows(count_unreadable(result), {})
    windows = spark.createDataFrame(
        [(start_ms,) for start_ms in cases.WINDOWS_MS], "start_ms bigint"
    ).select(expr("timestamp_millis(start_ms)").alias("window_start"))
    received = rollups.read_for(rows, cases.WINDOWS_MS[0], cases.WINDOWS_MS[-1] + cases.STEP_MS)
    rolled = rollups.roll_up(received, windows, cases.STEP_MS // 1000)
    return as_dicts(rolled.withColumn("start_ms", expr("unix_millis(window_start)")))


def _ingest_twice(spark: SparkSession, servers: str, tables: Tables) -> dict[str, Any]:
    """Some events and a late one, then more: what the tables hold after each."""
    topic = f"history-{tables.format}"
    client = SecondClient(servers)
    client.create(topic, 2)
    create_tables(spark, tables)
    result = []
    for part in cases.PARTS:
        client.produce(topic, [encode(event) for event in part])
        ingest_once(spark, servers, tables, topic)
        result.append({name: _of_table(spark, tables, name, columns) for name, columns in _TABLES})
    return {"after": result}


_TABLES: Sequence[tuple[str, Mapping[str, str]]] = (
    (partition_rows.NAME, partition_rows.COLUMNS),
    (rollups.MINUTES, rollups.TABLE_COLUMNS),
    (rollups.HOURS, rollups.TABLE_COLUMNS),
)


def _of_table(
    spark: SparkSession, tables: Tables, name: str, columns: Mapping[str, str]
) -> list[dict[str, Any]]:
    rows = tables.read(spark, name, columns)
    if name == partition_rows.NAME:
        return as_dicts(rows.select("event_id", "partition", "first", "day"))
    return as_dicts(rows.selectExpr("query_id", "unix_millis(window_start) AS start_ms", "events"))


def ingest_once(spark: SparkSession, servers: str, tables: Tables, topic: str) -> None:
    options = kafka_options(ClusterAccess(servers, Settings().kafka))
    one = ingest(spark, tables, kafka_options=options, lag_topic=topic, thresholds={})
    rolling = (rollups.roll_ups(spark, tables, name, lateness=LATENESS) for name in rollups.STEPS_S)
    for writer in (one, *rolling):
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        BatchLog(query).update()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

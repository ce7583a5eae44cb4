"""Drivers that the tests run as processes of their own: `python -m tests.listener.drivers.ending`.

What they have in common is here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from scripts.class_data import connector_options
from sparklag_jobs.broker.maven import spark_kafka_jars


def build_session(
    config: dict[str, str] | None = None, jars: Sequence[Path] | None = None
) -> SparkSession:
    """A small local Spark with the Kafka connector, quick to start and to say it is idle.

    `jars` are the connector's, where they are not those that belong to this Spark. Below
    `spark-submit` its command line names them.
    """
    options = {}
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        options = connector_options(spark_kafka_jars() if jars is None else jars)
    builder = (
        SparkSession.builder.master("local[1]")
        .appName("sparklag-tests")
        .config("spark.sql.streaming.noDataProgressEventInterval", "300")
    )
    for name, value in {**options, **(config or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def read_kafka(
    spark: SparkSession, bootstrap_servers: str, format: str = "kafka", **options: str
) -> DataFrame:
    """A Kafka source from the earliest record on. `options` as Spark names them."""
    named = {"startingOffsets": "earliest", "kafka.bootstrap.servers": bootstrap_servers, **options}
    return spark.readStream.format(format).options(**named).load()


def start_query(
    frame: DataFrame,
    checkpoint: object,
    name: str | None = "orders",
    write: Callable[[DataFrame, int], None] | None = None,
    output_mode: str = "append",
    **trigger: Any,
) -> StreamingQuery:
    """Start a query to foreachBatch with `write`, or to the noop sink."""
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).outputMode(output_mode)
    writer = writer.format("noop") if write is None else writer.foreachBatch(write)
    if name is not None:
        writer = writer.queryName(name)
    if trigger:
        writer = writer.trigger(**trigger)
    return writer.start()


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()

"""A Spark session without a screen, whose queries say something only when a batch completes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from sparklag_jobs.broker.maven import spark_kafka_jars


@contextmanager
def quiet_spark() -> Iterator[SparkSession]:
    """On this machine, with the Kafka source; stopped on exit."""
    with tempfile.TemporaryDirectory() as folder:
        spark = (
            SparkSession.builder.master("local[2]")
            .appName("sparklag-benchmark")
            .config("spark.jars", ",".join(str(jar) for jar in spark_kafka_jars()))
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            # An idle event in between would be measured too.
            .config("spark.sql.streaming.noDataProgressEventInterval", "1h")
            .config("spark.sql.warehouse.dir", folder)
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark
        finally:
            spark.stop()

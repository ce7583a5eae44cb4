"""The jars of Spark's Kafka connector and Connect server for the lane that this runs in."""

from __future__ import annotations

from pathlib import Path

from pyspark.version import __version__

from sparklag_jobs.broker.maven import Module, jars_beside_spark, spark_kafka_jars


def connector_jars() -> list[Path]:
    """For the class path. Raises what `resolve_jars` raises."""
    if __version__ == "4.3.0":
        # A mismatch, on purpose: not every mirror has the connector of 4.3.
        return jars_beside_spark(Module("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"))
    return spark_kafka_jars()


def connect_jars() -> list[Path]:
    """Those that PySpark lacks: 3.5 does not have the server."""
    if not __version__.startswith("3."):
        return []
    return jars_beside_spark(Module("org.apache.spark", "spark-connect_2.12", __version__))

"""The jars of Spark's Kafka connector for the lane that this runs in."""

from __future__ import annotations

import re
from pathlib import Path

import pyspark
from pyspark.version import __version__

from sparklag_pipeline.broker.maven import Module, resolve_jars, spark_kafka_jars

_SPARK = "org.apache.spark"
_CONNECTOR = "spark-sql-kafka-0-10_2.13"
_TOKEN_PROVIDER = "spark-token-provider-kafka-0-10_2.13"

_FOREIGN_TOKEN_PROVIDER = {"4.2.0": "4.0.0"}
"""A mismatch, on purpose: not every mirror has the module that belongs to the connector. It is used
for security only, so a lane with it shows nothing about that."""


def connector_jars() -> list[Path]:
    """For the class path. Raises what `resolve_jars` raises."""
    foreign = _FOREIGN_TOKEN_PROVIDER.get(__version__)
    if foreign is None:
        return spark_kafka_jars()
    spark_has = (Path(pyspark.__file__).parent / "jars").glob("*.jar")
    names = sorted({re.sub(r"-\d[^/]*\.jar$", "", jar.name) for jar in spark_has})
    excluding = [
        Module("org.apache.hadoop", "hadoop-client-.*"),
        *(Module(".*", re.escape(name)) for name in names),
    ]
    connector = resolve_jars(
        [Module(_SPARK, _CONNECTOR, __version__)],
        excluding=[*excluding, Module(_SPARK, re.escape(_TOKEN_PROVIDER))],
    )
    clients = Module("org.apache.kafka", "kafka-clients")
    token_provider = resolve_jars(
        [Module(_SPARK, _TOKEN_PROVIDER, foreign)], excluding=[*excluding, clients]
    )
    return [*connector, *token_provider]

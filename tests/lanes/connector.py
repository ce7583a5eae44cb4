"""The jars of Spark's Kafka connector for the lane that this runs in."""

from __future__ import annotations

import re
from pathlib import Path

import pyspark
from pyspark.version import __version__

from sparklag_pipeline.broker.maven import Module, resolve_jars, spark_kafka_jars

_SPARK = "org.apache.spark"

_CONNECTORS = {
    "3.5.9": ("3.5.7", "3.5.7"),
    "4.0.5": ("4.0.4", "4.0.0"),
    "4.1.4": ("4.1.3", "4.1.1"),
    "4.2.1": ("4.2.0", "4.2.0"),
    "4.3.0": ("4.2.0", "4.2.0"),
}
"""Of a Spark the connector and its token provider. Mismatches, on purpose: not every mirror has
the modules of each Spark. The provider is used for security only, so no lane shows anything about
that."""


def connector_jars() -> list[Path]:
    """For the class path. Raises what `resolve_jars` raises."""
    if __version__ not in _CONNECTORS:
        return spark_kafka_jars()
    connector_version, provider_version = _CONNECTORS[__version__]
    scala = "2.12" if __version__.startswith("3.") else "2.13"
    connector = f"spark-sql-kafka-0-10_{scala}"
    token_provider = f"spark-token-provider-kafka-0-10_{scala}"
    spark_has = (Path(pyspark.__file__).parent / "jars").glob("*.jar")
    names = sorted({re.sub(r"-\d[^/]*\.jar$", "", jar.name) for jar in spark_has})
    excluding = [
        Module("org.apache.hadoop", "hadoop-client-.*"),
        *(Module(".*", re.escape(name)) for name in names),
    ]
    of_connector = resolve_jars(
        [Module(_SPARK, connector, connector_version)],
        excluding=[*excluding, Module(_SPARK, re.escape(token_provider))],
    )
    clients = Module("org.apache.kafka", "kafka-clients")
    of_provider = resolve_jars(
        [Module(_SPARK, token_provider, provider_version)], excluding=[*excluding, clients]
    )
    return [*of_connector, *of_provider]

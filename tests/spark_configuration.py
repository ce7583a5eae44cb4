"""The settings of each Spark that a test starts.

SPARK_CONF_DIR does not name them: that folder is on the class path, and Java uses no class data
where a folder of the class path has files.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

PROPERTIES: Final = Path(__file__).parent / "spark_conf" / "spark-defaults.conf"
SUBMIT_OPTIONS: Final = ("--properties-file", str(PROPERTIES))


def pyspark_environment(*options: str) -> dict[str, str]:
    return {
        "PYSPARK_SUBMIT_ARGS": shlex.join([*SUBMIT_OPTIONS, *options, "pyspark-shell"]),
        # The JVM that only puts spark-submit's command together.
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }


def kafka_options() -> list[str]:
    from scripts.class_data import connector_options
    from sparklag_jobs.broker.maven import spark_kafka_jars

    options = connector_options(spark_kafka_jars())
    return [part for pair in options.items() for part in ("--conf", "=".join(pair))]

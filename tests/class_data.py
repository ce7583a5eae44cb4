"""Makes the archives of class data that brokers and Spark's drivers start from, where missing.

`python -m tests.class_data SERVERS TOPIC FOLDER` is the driver whose classes are archived.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from scripts.class_data import kafka_class_data, spark_class_data
from sparklag_jobs.broker.maven import spark_kafka_jars
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.spark_configuration import pyspark_environment

_TOPIC: Final = "class-data"
_PROGRAM: Final = "tests.class_data"
_END_S: Final = 900.0


def make_kafka_class_data() -> list[Path]:
    archive = kafka_class_data()
    archive.make(_run_broker)
    return [archive.path, *archive.files]


def make_spark_class_data() -> list[Path]:
    archive = spark_class_data(spark_kafka_jars())
    archive.make(_run_driver)
    return [archive.path, *archive.files]


def _run_broker(options: Sequence[str]) -> None:
    broker = LocalKafka()
    broker.jvm_options = options
    with broker:
        _fill(broker)
        # It writes the archive as it ends.
        broker.stop(_END_S)


def _run_driver(options: Sequence[str]) -> None:
    with LocalKafka() as broker, TemporaryDirectory() as folder:
        _fill(broker)
        log = Path(folder) / "log"
        with log.open("wb") as output:
            done = subprocess.run(
                [sys.executable, "-m", _PROGRAM, broker.bootstrap_servers, _TOPIC, folder],
                env={
                    **{
                        name: value
                        for name, value in os.environ.items()
                        if name != "SPARK_CONF_DIR"
                    },
                    **pyspark_environment(),
                    "SPARK_SUBMIT_OPTS": " ".join(f'"{option}"' for option in options),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_END_S,
                check=False,
            )
        if done.returncode != 0:
            raise RuntimeError(log.read_text(errors="replace"))


def _fill(broker: LocalKafka) -> None:
    client = SecondClient(broker.bootstrap_servers)
    client.produce(client.create(_TOPIC, 2), [b"{}"] * 20)


def main(servers: str, topic: str, folder: str) -> None:
    from sparklag_jobs.demo import order_totals
    from sparklag_listener import observe
    from sparklag_schemas.settings import ClusterAccess
    from tests.listener.drivers import build_session, read_kafka

    spark = build_session()
    handle = observe(spark, servers, offsets_topic="class-data-offsets", topic_partitions=1)
    access = ClusterAccess(servers)
    totals = order_totals.build(
        spark, access, f"{folder}/totals", orders_topic=topic, totals_topic=topic
    ).start()
    totals.processAllAvailable()
    totals.stop()

    def count(batch: Any, number: int) -> None:
        batch.count()

    each = read_kafka(spark, servers, subscribe=topic).writeStream.foreachBatch(count)
    each.trigger(availableNow=True).start().awaitTermination()
    handle.close()
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    # The JVM ends with this pipe, and writes the archive.
    gateway.proc.stdin.close()
    gateway.proc.wait(_END_S)


if __name__ == "__main__":
    main(*sys.argv[1:])

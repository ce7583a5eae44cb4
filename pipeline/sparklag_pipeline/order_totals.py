"""The query worth watching: what each customer ordered in each ten seconds.

python -m sparklag_pipeline.order_totals --bootstrap-servers localhost:9092
spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 order_totals.py ...
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from types import FrameType
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, expr, from_json, struct, to_json, window
from pyspark.sql.functions import sum as total
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sparklag_listener import observe
from sparklag_pipeline.maven import spark_kafka_jars
from sparklag_pipeline.orders import ORDERS_TOPIC, QUERY_NAME, orders_topic
from sparklag_pipeline.topics import create_topics
from sparklag_schemas.errors import SparklagError
from sparklag_schemas.topics import TopicSpec

TOTALS_TOPIC: Final = "order-totals"

_ORDER_SCHEMA: Final = "order_id string, customer string, amount_cents bigint, ordered_at bigint"
# On two cores the optimising compiler takes longer than it ever wins back here.
_JVM_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_STOP_POLL_S: Final = 0.5

log = logging.getLogger(__name__)


def build(
    spark: SparkSession,
    *,
    bootstrap_servers: str,
    checkpoint: str,
    orders_topic: str = ORDERS_TOPIC,
    totals_topic: str = TOTALS_TOPIC,
    max_offsets_per_trigger: int | None = None,
    trigger_interval: str = "2 seconds",
) -> DataStreamWriter:
    """The query, not yet started. Both topics must exist.

    It reads at most `max_offsets_per_trigger` records in a batch (None: all there are), and
    starts one every `trigger_interval`: together they bound how fast it can be.
    """
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", orders_topic)
        .option("startingOffsets", "earliest")
    )
    if max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", max_offsets_per_trigger)

    order = from_json(col("value").cast("string"), _ORDER_SCHEMA)
    totals = (
        reader.load()
        .select(order.alias("order"))
        .select("order.*")
        .withColumn("ordered_at", expr("timestamp_millis(ordered_at)"))
        .withWatermark("ordered_at", "10 seconds")
        .groupBy("customer", window("ordered_at", "10 seconds"))
        .agg(count("*").alias("orders"), total("amount_cents").alias("amount_cents"))
    )
    return (
        totals.select(
            col("customer").alias("key"),
            to_json(
                struct(
                    "customer",
                    col("window.start").alias("from"),
                    col("window.end").alias("to"),
                    "orders",
                    "amount_cents",
                )
            ).alias("value"),
        )
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", totals_topic)
        .option("checkpointLocation", checkpoint)
        .queryName(QUERY_NAME)
        .outputMode("update")
        .trigger(processingTime=trigger_interval)
    )


def build_session(*, ui: bool = False) -> SparkSession:
    """A small local session with the Kafka connector; under spark-submit, what it was given.

    Raises JavaMissing, DownloadFailed.
    """
    builder = (
        SparkSession.builder.appName("order-totals")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.adaptive.enabled", "false")  # streams do without, and warn
        # `query.stop()` must not wait for ever for a batch whose broker is gone.
        .config("spark.sql.streaming.stopTimeout", "5s")
    )
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit sets it: there the JVM runs already
        jars = ",".join(str(jar) for jar in spark_kafka_jars())
        builder = (
            builder.master("local[2]")
            .config("spark.jars", jars)
            .config("spark.ui.enabled", str(ui).lower())
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "768m")
            .config("spark.driver.extraJavaOptions", _JVM_OPTIONS)
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
        )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def run(spark: SparkSession, arguments: argparse.Namespace) -> None:
    """Run the query until it fails, or SIGINT or SIGTERM comes. Creates the topics if missing."""
    signals = _Signals()
    topics = [orders_topic(arguments.orders_topic), _totals_topic(arguments.totals_topic)]
    asyncio.run(create_topics(arguments.bootstrap_servers, topics))

    # ----------------------------------------------------------------------------------------
    # All that sparklag needs are these two lines (the other one is the import).
    # The topic and the brokers it finds in the query itself.
    handle = observe(spark)
    # ----------------------------------------------------------------------------------------

    query = build(
        spark,
        bootstrap_servers=arguments.bootstrap_servers,
        checkpoint=arguments.checkpoint or tempfile.mkdtemp(prefix="order-totals-checkpoint-"),
        orders_topic=arguments.orders_topic,
        totals_topic=arguments.totals_topic,
        max_offsets_per_trigger=arguments.max_offsets_per_trigger,
        trigger_interval=arguments.trigger_interval,
    ).start()
    log.info("query %s runs, id %s", query.name, query.id)
    try:
        _await_end(query, signals)
    finally:
        query.stop()
        handle.close()
    log.info("query %s has ended", query.name)


def _totals_topic(name: str) -> TopicSpec:
    return TopicSpec(
        name=name,
        partitions=2,
        replication_factor=None,
        cleanup_policy=frozenset({"delete"}),
        config={"cleanup.policy": "delete", "retention.ms": "3600000"},
    )


class _Signals:
    """Remembers SIGINT and SIGTERM: raising out of a call to the JVM would break its connection."""

    def __init__(self) -> None:
        self.came = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._remember)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.came = True


def _await_end(query: StreamingQuery, signals: _Signals) -> None:
    # PySpark's stubs know whole seconds only, its code takes parts of one too.
    while not signals.came and not query.awaitTermination(_STOP_POLL_S):  # type: ignore[arg-type]
        pass


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m sparklag_pipeline.order_totals",
        description="Total the orders of each customer and ten seconds, until Ctrl-C.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--bootstrap-servers", required=True, help="host:port[,host:port...]")
    parser.add_argument("--orders-topic", default=ORDERS_TOPIC, help="read; must exist")
    parser.add_argument("--totals-topic", default=TOTALS_TOPIC, help="written; must exist")
    parser.add_argument("--checkpoint", help="directory of the checkpoint; a new one if not given")
    parser.add_argument(
        "--max-offsets-per-trigger", type=int, help="records in a batch at most; all if not given"
    )
    parser.add_argument("--trigger-interval", default="2 seconds", help="between batches' starts")
    parser.add_argument("--ui", action="store_true", help="Spark's own pages, on its own port")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 when ended by a signal, 1 with the reason when the query failed."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    arguments = _arguments(argv)
    try:
        spark = build_session(ui=arguments.ui)
        try:
            run(spark, arguments)
        finally:
            spark.stop()
    except (SparklagError, PySparkException, Py4JJavaError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The query that the demo watches: the orders of each customer in each ten seconds.

python -m sparklag_jobs.demo.order_totals --bootstrap-servers localhost:9092
spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 order_totals.py ...

The settings `kafka.*` apply to its connection, like the listener's.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, expr, from_json, struct, to_json, window
from pyspark.sql.functions import sum as total
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sparklag_jobs import query_process
from sparklag_jobs.demo.streams import (
    ORDERS,
    TOTALS_PARTITIONS,
    TOTALS_TOPIC,
    TRIGGER_S,
    create_topics,
    demo_topic,
)
from sparklag_jobs.history.events import kafka_options
from sparklag_jobs.query_process import StopSignals, await_end, stop_query
from sparklag_listener import observe
from sparklag_schemas.errors import SparklagError
from sparklag_schemas.settings import ClusterAccess, load_settings

TRIGGER_INTERVAL: Final = f"{TRIGGER_S} seconds"

_ORDER_SCHEMA: Final = "order_id string, customer string, amount_cents bigint, ordered_at bigint"

log = logging.getLogger(__name__)


def read_topic(
    spark: SparkSession, access: ClusterAccess, topic: str, max_offsets_per_trigger: int | None
) -> DataFrame:
    """The records of a topic from its beginning. `max_offsets_per_trigger` limits a batch."""
    reader = (
        spark.readStream.format("kafka")
        .options(**kafka_options(access))
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )
    if max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", max_offsets_per_trigger)
    return reader.load()


def build(
    spark: SparkSession,
    access: ClusterAccess,
    checkpoint: str | Path,
    *,
    orders_topic: str = ORDERS.topic,
    totals_topic: str = TOTALS_TOPIC,
    max_offsets_per_trigger: int | None = None,
    trigger_interval: str = TRIGGER_INTERVAL,
) -> DataStreamWriter:
    """The query, not started yet. Both topics must exist.

    The batch size and the trigger interval together limit its rate.
    """
    records = read_topic(spark, access, orders_topic, max_offsets_per_trigger)
    order = from_json(col("value").cast("string"), _ORDER_SCHEMA)
    totals = (
        records.select(order.alias("order"))
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
        .options(**kafka_options(access))
        .option("topic", totals_topic)
        .option("checkpointLocation", str(checkpoint))
        .queryName(ORDERS.topic)
        .outputMode("update")
        .trigger(processingTime=trigger_interval)
    )


def build_session() -> SparkSession:
    """A small local session with the Kafka connector; under spark-submit, the given session. Raises
    JavaMissing, DownloadFailed."""
    return query_process.build_session(
        "order-totals",
        settings={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.adaptive.enabled": "false",  # streams do not use it, and warn
            # `query.stop()` must not wait forever for a batch whose broker is gone.
            "spark.sql.streaming.stopTimeout": "5s",
        },
        local={"spark.master": "local[2]", "spark.driver.memory": "768m"},
    )


def run(spark: SparkSession, arguments: argparse.Namespace) -> None:
    """Run the query until it fails, or on SIGINT or SIGTERM. Creates missing topics."""
    signals = StopSignals()
    kafka = msgspec.structs.replace(load_settings().kafka, client_id="order-totals")
    access = ClusterAccess(arguments.bootstrap_servers, kafka)
    topics = [
        demo_topic(arguments.orders_topic, ORDERS.partitions),
        demo_topic(arguments.totals_topic, TOTALS_PARTITIONS),
    ]
    asyncio.run(create_topics(access.bootstrap_servers, topics, kafka))

    # ----------------------------------------------------------------------------------------
    # sparklag needs this line and its import, no more: it takes the topic and the brokers from
    # the query itself.
    handle = observe(spark)
    # ----------------------------------------------------------------------------------------

    query = build(
        spark,
        access,
        arguments.checkpoint or tempfile.mkdtemp(prefix="order-totals-checkpoint-"),
        orders_topic=arguments.orders_topic,
        totals_topic=arguments.totals_topic,
        max_offsets_per_trigger=arguments.max_offsets_per_trigger,
        trigger_interval=arguments.trigger_interval,
    ).start()
    log.info("query %s runs, id %s", query.name, query.id)
    try:
        await_end([query], signals)
    finally:
        stop_query(query, signals)
        handle.close()
    log.info("query %s has ended", query.name)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m sparklag_jobs.demo.order_totals",
        description="Total the orders of each customer and ten seconds, until Ctrl-C.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--bootstrap-servers", required=True, help="host:port[,host:port...]")
    parser.add_argument("--orders-topic", default=ORDERS.topic, help="read; must exist")
    parser.add_argument("--totals-topic", default=TOTALS_TOPIC, help="written; must exist")
    parser.add_argument("--checkpoint", help="directory of the checkpoint; a new one if not given")
    parser.add_argument(
        "--max-offsets-per-trigger", type=int, help="records in a batch at most; all if not given"
    )
    parser.add_argument(
        "--trigger-interval", default=TRIGGER_INTERVAL, help="between batches' starts"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the query. Exit code: 0 after a signal, 1 with the reason if the query failed."""
    arguments = _arguments(argv)
    return run_in_session(lambda spark: run(spark, arguments))


def run_in_session(run: Callable[[SparkSession], None]) -> int:
    """Configure the log, open a session, call `run`. Exit code: 1 after an error."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        spark = build_session()
        try:
            run(spark)
        finally:
            spark.stop()
    except (SparklagError, PySparkException, Py4JJavaError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

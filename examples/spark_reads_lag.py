"""Lag events as rows in Spark: to store them in a table, or to join them with your data.

EVENT has the fields you need; docs/reference/lag_event.md lists them all. sparklag need not be
installed. It reads JSON: Avro values, tombstones and foreign values have no row.

spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 spark_reads_lag.py \\
    localhost:9092 consumer-lag
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

EVENT = """
    query_id STRING, query STRING, status STRING, total_lag BIGINT, max_time_lag_s DOUBLE,
    event_id STRING, observed_at BIGINT, measured_at BIGINT
"""


def lag_events(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """At least one row for each event: duplicates share an event_id. Of two events of a query, the
    one with the higher (observed_at, measured_at) is newer."""
    kafka = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    records = kafka.option("subscribe", topic).option("startingOffsets", "earliest").load()
    event = from_json(col("value").cast("string"), EVENT)
    return records.select(event.alias("event")).select("event.*").where("query_id IS NOT NULL")


def main() -> None:
    servers, topic = sys.argv[1:]
    spark = SparkSession.builder.appName("lag-events").getOrCreate()
    shown = lag_events(spark, servers, topic).writeStream.format("console")
    shown.option("truncate", False).start().awaitTermination()


if __name__ == "__main__":
    main()

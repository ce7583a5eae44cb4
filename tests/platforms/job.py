"""A user's job: it counts what a topic has, in one batch, and ends."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(bootstrap_servers: str, topic: str, checkpoint: str) -> None:
    spark = SparkSession.builder.appName("counts").getOrCreate()
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        records.writeStream.format("noop")
        .queryName("counts")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

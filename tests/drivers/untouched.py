"""A driver that knows nothing of sparklag: two queries on one topic, until it is killed.

Arguments: bootstrap servers, topic, a folder for the checkpoints, and a file. `orders` reads a
hundred records a batch; its third batch takes until the file is there. `continuous` is one that
fires no listener events.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from sparklag_jobs.broker.maven import spark_kafka_jars
from tests.listener.drivers import read_kafka, start_query

if __name__ == "__main__":
    bootstrap_servers, topic, folder, gate = sys.argv[1:]
    # A continuous query holds a core for each of its partitions.
    spark = (
        SparkSession.builder.master("local[8]")
        .config("spark.jars", ",".join(map(str, spark_kafka_jars())))
        .config("spark.driver.memory", "768m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    def write(batch: DataFrame, batch_id: int) -> None:
        while batch_id == 2 and not Path(gate).exists():
            time.sleep(0.05)
        batch.write.format("noop").mode("overwrite").save()

    orders = read_kafka(spark, bootstrap_servers, subscribe=topic, maxOffsetsPerTrigger="100")
    start_query(orders, f"{folder}/orders", None, write, processingTime="2 seconds")
    frame = read_kafka(spark, bootstrap_servers, subscribe=topic)
    start_query(frame, f"{folder}/continuous", None, continuous="1 second")
    spark.streams.awaitAnyTermination()

"""A driver with the whole service inside: prints where that answers, and runs until SIGTERM. Its
second query also reads what the service publishes.

Arguments: bootstrap servers, topic, checkpoint.
"""

from __future__ import annotations

import os
import sys
import time

from sparklag_listener import observe
from sparklag_pipeline.demo.order_totals import build_session

if __name__ == "__main__":
    bootstrap_servers, topic, checkpoint = sys.argv[1:]
    spark = build_session()
    handle = observe(spark, embedded=True, http_port=0)
    (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribePattern", f"{topic}|{os.environ['SPARKLAG_LAG_TOPIC']}")
        .load()
        .writeStream.format("noop")
        .queryName("loop")
        .trigger(processingTime="1 second")
        .start()
    )
    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100)
        .load()
        .writeStream.format("noop")
        .queryName("orders")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="4 seconds")
        .start()
    )
    while handle.stats().url is None:
        time.sleep(0.05)
    sys.stdout.write(f"{handle.stats().url}\n")
    sys.stdout.flush()
    query.awaitTermination()

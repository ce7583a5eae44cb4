"""A driver of one query that is observed, under the name `seen`, until it is killed.

Arguments: bootstrap servers, topic, checkpoint.
"""

from __future__ import annotations

import sys

from sparklag_listener import observe
from sparklag_pipeline.demo.order_totals import build_session

if __name__ == "__main__":
    bootstrap_servers, topic, checkpoint = sys.argv[1:]
    spark = build_session()
    observe(spark, bootstrap_servers)
    (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.foreachBatch(lambda batch, _: batch.write.format("noop").mode("append").save())
        .queryName("seen")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="1 second")
        .start()
        .awaitTermination()
    )

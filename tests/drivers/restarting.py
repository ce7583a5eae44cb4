"""A driver of one query that begins where the offset store says, where its checkpoint is new.

Arguments: bootstrap servers, topic, checkpoint, URL of the store, file of what it wrote, "publish"
or "record". Each batch is a line of that file: its number, and partition and offset of each record.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from sparklag_listener import observe, starting_offsets
from sparklag_pipeline.demo.order_totals import build_session

NAME = "restarted"


def main() -> None:
    """Run until killed."""
    bootstrap_servers, topic, checkpoint, store, written, way = sys.argv[1:]
    spark = build_session()
    if way == "publish":
        observe(spark, bootstrap_servers)
    else:
        observe(spark, store=store, publish=False)
    starting = "earliest"
    if not Path(checkpoint).exists():
        starting = starting_offsets(NAME, store=store, default="earliest")
    sys.stdout.write(f"{starting}\n")
    sys.stdout.flush()

    def write(batch: DataFrame, batch_id: int) -> None:
        rows = batch.select("partition", "offset").collect()
        places = [[row["partition"], row["offset"]] for row in rows]
        with Path(written).open("a", encoding="utf-8") as file:
            file.write(json.dumps([batch_id, places]) + "\n")
            file.flush()
            os.fsync(file.fileno())

    (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", starting)
        .option("maxOffsetsPerTrigger", 40)
        .load()
        .writeStream.foreachBatch(write)
        .queryName(NAME)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="1 second")
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main()

"""A driver of one query that begins at the stored offsets, where its checkpoint is new.

Arguments: bootstrap servers, topic, checkpoint, URL of the store, file of what it wrote, "publish"
or "record". Each batch is a line of that file: its number, and partition and offset of each record.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from sparklag_jobs.demo.order_totals import build_session
from sparklag_listener import observe, starting_offsets
from tests.listener.drivers import read_kafka, start_query, tell

NAME = "restarted"


def main() -> None:
    bootstrap_servers, topic, checkpoint, store, written, way = sys.argv[1:]
    spark = build_session()
    if way == "publish":
        observe(spark, bootstrap_servers)
    else:
        observe(spark, store=store, publish=False)
    starting = "earliest"
    if not Path(checkpoint).exists():
        starting = starting_offsets(NAME, store=store, default="earliest")
    tell(starting)

    def write(batch: DataFrame, batch_id: int) -> None:
        rows = batch.select("partition", "offset").collect()
        places = [[row["partition"], row["offset"]] for row in rows]
        with Path(written).open("a", encoding="utf-8") as file:
            file.write(json.dumps([batch_id, places]) + "\n")
            file.flush()
            os.fsync(file.fileno())

    options = {"subscribe": topic, "startingOffsets": starting, "maxOffsetsPerTrigger": "40"}
    frame = read_kafka(spark, bootstrap_servers, **options)
    start_query(frame, checkpoint, NAME, write, processingTime="1 second").awaitTermination()


if __name__ == "__main__":
    main()

"""A driver of one query that is observed, until it is killed.

Arguments: bootstrap servers, topic, checkpoint, the query's name, and a file: while that is there
no batch completes.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame

from sparklag_jobs.demo.order_totals import build_session
from sparklag_listener import observe
from tests.listener.drivers import read_kafka, start_query

if __name__ == "__main__":
    bootstrap_servers, topic, checkpoint, name, hold = sys.argv[1:]
    spark = build_session()
    observe(spark, bootstrap_servers)

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.format("noop").mode("append").save()
        while Path(hold).exists():
            time.sleep(0.05)

    frame = read_kafka(spark, bootstrap_servers, subscribe=topic, maxOffsetsPerTrigger="200")
    start_query(frame, checkpoint, name, write, processingTime="1 second").awaitTermination()

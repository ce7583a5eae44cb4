"""A driver with the whole service inside: prints where that answers, and runs until SIGTERM. Its
second query also reads what the service publishes.

Arguments: bootstrap servers, topic, checkpoint.
"""

from __future__ import annotations

import os
import sys
import time

from sparklag_jobs.demo.order_totals import build_session
from sparklag_listener import observe
from tests.listener.drivers import read_kafka, start_query, tell

if __name__ == "__main__":
    bootstrap_servers, topic, checkpoint = sys.argv[1:]
    spark = build_session()
    handle = observe(spark, embedded=True, http_port=0)
    both = f"{topic}|{os.environ['SPARKLAG_LAG_TOPIC']}"
    loop = read_kafka(spark, bootstrap_servers, subscribePattern=both, startingOffsets="latest")
    loop.writeStream.format("noop").queryName("loop").trigger(processingTime="1 second").start()
    orders = read_kafka(spark, bootstrap_servers, subscribe=topic, maxOffsetsPerTrigger="100")
    query = start_query(orders, checkpoint, processingTime="4 seconds")
    while handle.stats().url is None:
        time.sleep(0.05)
    tell(str(handle.stats().url))
    query.awaitTermination()

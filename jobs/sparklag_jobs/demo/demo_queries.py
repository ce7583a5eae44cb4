"""The demo's three queries, in one driver: `orders`; `payments`, whose lag is in one partition; and
`invoices`, which fails on an invalid invoice and is restarted.

python -m sparklag_jobs.demo.demo_queries --bootstrap-servers localhost:9092 --checkpoints DIR
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr, from_json
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sparklag_jobs.demo import order_totals, streams
from sparklag_jobs.demo.streams import INVOICES, ORDERS, PAYMENTS, STREAMS, demo_topic
from sparklag_jobs.query_process import StopSignals, await_end, stop_query
from sparklag_listener import observe
from sparklag_schemas.settings import ClusterAccess
from sparklag_schemas.timestamps import epoch_ms

RESTART_AFTER_S: Final = 8.0

_INVOICE_SCHEMA: Final = "invoice_id string, customer string, amount_cents bigint, issued_at bigint"
_CHECKED_AMOUNT: Final = """
    if(amount_cents >= 0, amount_cents,
       raise_error(concat('invoice ', invoice_id, ' has the amount ', amount_cents, ' cents')))
"""

log = logging.getLogger(__name__)


def build_payments(
    spark: SparkSession, access: ClusterAccess, checkpoint: Path
) -> DataStreamWriter:
    """The query that reads payments more slowly than a burst arrives; not started yet."""
    records = order_totals.read_topic(
        spark, access, PAYMENTS.topic, streams.MAX_PAYMENTS_PER_TRIGGER
    )
    return _discarding(records.select("key", "value"), PAYMENTS.topic, checkpoint).trigger(
        processingTime=f"{streams.PAYMENTS_TRIGGER_S} seconds"
    )


def build_invoices(
    spark: SparkSession, access: ClusterAccess, checkpoint: Path, *, started_at: int
) -> DataStreamWriter:
    """The query that fails on an invalid invoice; not started yet.

    It skips invalid invoices issued before `started_at` (epoch milliseconds), so that a restart
    gets past the one that it failed on.
    """
    records = order_totals.read_topic(spark, access, INVOICES.topic, None)
    invoice = from_json(col("value").cast("string"), _INVOICE_SCHEMA)
    checked = (
        records.select(invoice.alias("invoice"))
        .select("invoice.*")
        .where(f"amount_cents >= 0 or issued_at >= {started_at}")
        .withColumn("amount_cents", expr(_CHECKED_AMOUNT))
    )
    return _discarding(checked, INVOICES.topic, checkpoint).trigger(
        processingTime=order_totals.TRIGGER_INTERVAL
    )


def _discarding(rows: DataFrame, name: str, checkpoint: Path) -> DataStreamWriter:
    """Computes every row, and writes none."""
    writer = rows.writeStream.format("noop").queryName(name)
    return writer.option("checkpointLocation", str(checkpoint))


class RestartedQuery:
    """A query that `start` starts, and restarts some seconds after a failure."""

    def __init__(self, start: Callable[[], StreamingQuery]) -> None:
        self._start = start
        self._failed_at: float | None = None
        self.query = start()

    def poll(self) -> None:
        """Restart a failed query when its time has come."""
        if self.query.isActive:
            return
        now = time.monotonic()
        if self._failed_at is None:
            self._failed_at = now
            log.warning("query %s failed: %s", self.query.name, self.query.exception())
        elif now - self._failed_at >= RESTART_AFTER_S:
            self._failed_at = None
            self.query = self._start()
            log.info("query %s is restarted", self.query.name)


def run(spark: SparkSession, bootstrap_servers: str, checkpoints: Path) -> None:
    """Run the queries until `orders` or `payments` fails, or on SIGINT or SIGTERM. Creates missing
    topics."""
    signals = StopSignals()
    access = ClusterAccess(bootstrap_servers)
    topics = [demo_topic(stream.topic, stream.partitions) for stream in STREAMS]
    topics.append(demo_topic(streams.TOTALS_TOPIC, streams.TOTALS_PARTITIONS))
    asyncio.run(streams.create_topics(bootstrap_servers, topics))
    handle = observe(spark)

    def start_invoices() -> StreamingQuery:
        checkpoint = checkpoints / INVOICES.topic
        return build_invoices(spark, access, checkpoint, started_at=epoch_ms()).start()

    steady = [
        order_totals.build(
            spark,
            access,
            checkpoints / ORDERS.topic,
            max_offsets_per_trigger=streams.MAX_OFFSETS_PER_TRIGGER,
        ).start(),
        build_payments(spark, access, checkpoints / PAYMENTS.topic).start(),
    ]
    restarted = RestartedQuery(start_invoices)
    log.info("the queries run")
    try:
        await_end(steady, signals, restarted.poll)
    finally:
        for query in (*steady, restarted.query):
            stop_query(query, signals)
        handle.close()
    log.info("the queries have ended")


def main() -> int:
    """Run the queries. Exit code: 0 after a signal, 1 with the reason after a failure."""
    parser = argparse.ArgumentParser(
        prog="python -m sparklag_jobs.demo.demo_queries",
        description="Run the demo's three queries, until Ctrl-C.",
    )
    parser.add_argument("--bootstrap-servers", required=True, help="host:port[,host:port...]")
    parser.add_argument("--checkpoints", type=Path, required=True, help="folder of the checkpoints")
    arguments = parser.parse_args()
    return order_totals.run_in_session(
        lambda spark: run(spark, arguments.bootstrap_servers, arguments.checkpoints)
    )


if __name__ == "__main__":
    sys.exit(main())

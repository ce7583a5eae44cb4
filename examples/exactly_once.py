"""Every record of a topic once in a table, whatever dies in between.

Spark writes an unfinished batch again, so most sinks have some records twice after a crash. Here
the offsets of each batch are in the same database as its rows, written in the same transaction. So
a batch that was written is recognised, and if the checkpoint is lost the query starts where its
rows end.

pip install 'sparklag[postgresql]'
spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 exactly_once.py \\
    --bootstrap-servers localhost:9092 --topic orders --checkpoint /data/checkpoints/orders \\
    --database postgresql+psycopg://user:password@host/database
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, Table, Text, create_engine

from sparklag_listener import keep_offsets, prepare_store, starting_offsets

QUERY = "exactly-once"

metadata = MetaData()
# Without a unique key: a record that is written twice would be there twice.
records = Table(
    "records",
    metadata,
    Column("topic", Text, nullable=False),
    Column("partition_id", Integer, nullable=False),
    Column("record_offset", BigInteger, nullable=False),
    Column("value", Text),
)


def writer_to(engine: Engine) -> Callable[[DataFrame, int], None]:
    """The function for foreachBatch."""

    def write(batch: DataFrame, batch_id: int) -> None:
        with engine.begin() as transaction:
            # False: it was written before a crash, and Spark had not committed it.
            if keep_offsets(transaction, batch, batch_id):
                # A transaction is one connection: the driver's. maxOffsetsPerTrigger bounds what
                # it holds.
                rows = [row.asDict() for row in batch.collect()]
                if rows:
                    transaction.execute(records.insert(), rows)

    return write


def run(spark: SparkSession, arguments: argparse.Namespace) -> None:
    engine = create_engine(arguments.database)
    # Before the query starts: in MySQL a table cannot be made within a transaction.
    prepare_store(engine)
    metadata.create_all(engine)

    starting = starting_offsets(QUERY, store=arguments.database, default="earliest")
    frame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.bootstrap_servers)
        .option("subscribe", arguments.topic)
        # Spark looks at this only where the checkpoint is new.
        .option("startingOffsets", starting)
        .option("maxOffsetsPerTrigger", arguments.max_offsets_per_trigger)
        .load()
        .selectExpr(
            "topic",
            "partition AS partition_id",
            "offset AS record_offset",
            "CAST(value AS STRING) AS value",
        )
    )
    stream = (
        frame.writeStream.foreachBatch(writer_to(engine))
        # The name finds the query again when a new checkpoint has given it another id.
        .queryName(QUERY)
        .option("checkpointLocation", arguments.checkpoint)
    )
    if arguments.available_now:
        stream = stream.trigger(availableNow=True)
    stream.start().awaitTermination()


def main() -> None:
    parser = argparse.ArgumentParser(description="Every record of a topic once in a table.")
    parser.add_argument("--bootstrap-servers", required=True, help="host:port[,host:port...]")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--checkpoint", required=True, help="may be deleted between two runs")
    parser.add_argument("--database", required=True, help="sqlite:///…, postgresql+psycopg://…")
    parser.add_argument("--max-offsets-per-trigger", type=int, default=10_000)
    parser.add_argument("--available-now", action="store_true", help="end when all is read")
    arguments = parser.parse_args()
    spark = SparkSession.builder.appName(QUERY).getOrCreate()
    run(spark, arguments)
    spark.stop()


if __name__ == "__main__":
    main()

"""Where the history is: folders of Parquet files, Delta tables, or Iceberg tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_args

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sparklag_pipeline.errors import JobSettingWrong, TableMissing

Format = Literal["parquet", "delta", "iceberg"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)

_EVERY_FILE: Final = str(2**31 - 1)


class Tables(ABC):
    """The tables of one history, each a folder `<location>/<name>`."""

    format: Format
    knows_available_now = True
    """Whether a stream of them can take all there is and end, with the windows that are over by
    then (`Trigger.AvailableNow`)."""

    def __init__(self, location: str) -> None:
        self.location = location.rstrip("/")

    def path(self, name: str) -> str:
        """Of a table."""
        return f"{self.location}/{name}"

    def checkpoint(self, name: str) -> str:
        """Of the query that writes a table."""
        return f"{self.location}/_checkpoints/{name}"

    def session_settings(self) -> Mapping[str, str]:
        """What a session must have been built with."""
        return {}

    def require(self, name: str) -> None:
        """Raises TableMissing where the table is to be on this machine, and is not: found out
        before Spark is started."""
        folder = self.location.removeprefix("file://")
        if "://" not in folder and not Path(folder.removeprefix("file:"), name).is_dir():
            raise self._missing(name)

    @abstractmethod
    def create(self, spark: SparkSession, name: str, schema: str, *partitioned_by: str) -> None:
        """So that it can be read as a stream before anything was written. Idempotent."""

    @abstractmethod
    def append(self, rows: DataFrame, name: str, *partitioned_by: str) -> DataStreamWriter:
        """A streaming write, exactly once, not yet started; with its checkpoint."""

    @abstractmethod
    def replace(self, rows: DataFrame, name: str, *partitioned_by: str) -> None:
        """Write `rows` in place of what the partitions that they are in held before."""

    @abstractmethod
    def read_stream(self, spark: SparkSession, name: str, schema: str) -> DataFrame:
        """As a stream of what is appended; each batch takes all there is."""

    @abstractmethod
    def read(self, spark: SparkSession, name: str, schema: str) -> DataFrame:
        """As it is now. Raises TableMissing where there is none."""

    def _missing(self, name: str) -> TableMissing:
        return TableMissing(f"no {self.format} table {name} in {self.location}")


class _TablesByPath(Tables):
    """Each is a folder."""

    def append(self, rows: DataFrame, name: str, *partitioned_by: str) -> DataStreamWriter:
        return (
            rows.writeStream.format(self.format)
            .option("path", self.path(name))
            .option("checkpointLocation", self.checkpoint(name))
            .partitionBy(*partitioned_by)
        )

    def replace(self, rows: DataFrame, name: str, *partitioned_by: str) -> None:
        (
            rows.write.format(self.format)
            .mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .partitionBy(*partitioned_by)
            .save(self.path(name))
        )


class ParquetTables(_TablesByPath):
    """Folders of Parquet files. What was appended is what the sink's log, `_spark_metadata`, lists:
    files of a batch that did not come to its end are there and do not count."""

    format = "parquet"

    def create(self, spark: SparkSession, name: str, schema: str, *partitioned_by: str) -> None:
        path, system = _folder(spark, self.path(name))
        system.mkdirs(path)

    def read_stream(self, spark: SparkSession, name: str, schema: str) -> DataFrame:
        return spark.readStream.schema(schema).parquet(self.path(name))

    def read(self, spark: SparkSession, name: str, schema: str) -> DataFrame:
        path, system = _folder(spark, self.path(name))
        if not system.exists(path):
            raise self._missing(name)
        return spark.read.schema(schema).parquet(self.path(name))


class DeltaTables(_TablesByPath):
    """Delta tables, by path. Needs `io.delta:delta-spark`."""

    format = "delta"

    def session_settings(self) -> Mapping[str, str]:
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }

    def create(self, spark: SparkSession, name: str, schema: str, *partitioned_by: str) -> None:
        empty = spark.createDataFrame([], schema)
        (
            empty.write.format("delta")
            .mode("ignore")
            .partitionBy(*partitioned_by)
            .save(self.path(name))
        )

    def read_stream(self, spark: SparkSession, name: str, schema: str) -> DataFrame:
        # A batch of the writer must not be split: the rest of it would come too late.
        return (
            spark.readStream.format("delta")
            .option("maxFilesPerTrigger", _EVERY_FILE)
            .load(self.path(name))
        )

    def read(self, spark: SparkSession, name: str, schema: str) -> DataFrame:
        try:
            return spark.read.format("delta").load(self.path(name))
        except PySparkException as error:
            raise self._missing(name) from error


class IcebergTables(Tables):
    """Iceberg tables of a Hadoop catalog: the location is a namespace of the warehouse above it,
    because without one Iceberg takes `partitions` for its own list of partitions. Needs
    `org.apache.iceberg:iceberg-spark-runtime`."""

    format = "iceberg"
    # Spark falls back to a single batch, and what that one closes would be told by the next.
    knows_available_now = False

    def __init__(self, location: str) -> None:
        super().__init__(location if "://" in location else str(Path(location).absolute()))
        self._warehouse, _, self._namespace = self.location.rpartition("/")

    def session_settings(self) -> Mapping[str, str]:
        return {
            "spark.sql.catalog.lag_history": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lag_history.type": "hadoop",
            "spark.sql.catalog.lag_history.warehouse": self._warehouse,
            # The tables change under a session that runs for weeks.
            "spark.sql.catalog.lag_history.cache-enabled": "false",
        }

    def create(self, spark: SparkSession, name: str, schema: str, *partitioned_by: str) -> None:
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self._table(name)} ({schema}) USING iceberg"
            f" PARTITIONED BY ({', '.join(partitioned_by)})"
        )

    def append(self, rows: DataFrame, name: str, *partitioned_by: str) -> DataStreamWriter:
        return (
            rows.writeStream.format("iceberg")
            .outputMode("append")
            .option("path", self._table(name))
            .option("fanout-enabled", "true")  # else it wants the rows sorted by partition
            .option("checkpointLocation", self.checkpoint(name))
        )

    def replace(self, rows: DataFrame, name: str, *partitioned_by: str) -> None:
        rows.writeTo(self._table(name)).overwritePartitions()

    def read_stream(self, spark: SparkSession, name: str, schema: str) -> DataFrame:
        return spark.readStream.format("iceberg").load(self._table(name))

    def read(self, spark: SparkSession, name: str, schema: str) -> DataFrame:
        try:
            return spark.table(self._table(name))
        except PySparkException as error:
            raise self._missing(name) from error

    def _table(self, name: str) -> str:
        return f"lag_history.`{self._namespace}`.{name}"


def tables(format: str, location: str) -> Tables:
    """Those of a history at `location`, a folder or a URI. Raises JobSettingWrong."""
    for kind in (ParquetTables, DeltaTables, IcebergTables):
        if kind.format == format:
            return kind(location)
    raise JobSettingWrong(f"format {format!r}: takes {', '.join(FORMATS)}")


def _folder(spark: SparkSession, location: str) -> tuple[Any, Any]:
    """A folder and its file system, as Hadoop has them."""
    context: Any = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(location)
    return path, path.getFileSystem(context._jsc.hadoopConfiguration())

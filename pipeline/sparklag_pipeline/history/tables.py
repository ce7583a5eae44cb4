"""Where the history is: folders of Parquet files, or Delta tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_args

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sparklag_pipeline.errors import JobSettingWrong, TableMissing
from sparklag_pipeline.history.schema import ddl

Format = Literal["parquet", "delta"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)

Columns = Mapping[str, str]
"""Names and Spark types."""

_EVERY_FILE: Final = str(2**31 - 1)


class Tables(ABC):
    """The tables of one history, each a folder `<location>/<name>`."""

    format: Format

    def __init__(self, location: str) -> None:
        self.location = location.rstrip("/")

    def path(self, name: str) -> str:
        """Of a table."""
        return f"{self.location}/{name}"

    def checkpoint(self, name: str) -> str:
        """Of the query that writes the table."""
        return f"{self.location}/_checkpoints/{name}"

    def session_settings(self) -> Mapping[str, str]:
        """What the session must be built with."""
        return {}

    def require(self, name: str) -> None:
        """Before Spark is started: raises TableMissing for a local folder that is not there."""
        folder = self.location.removeprefix("file://")
        if "://" not in folder and not Path(folder.removeprefix("file:"), name).is_dir():
            raise self._missing(name)

    @abstractmethod
    def create(self, spark: SparkSession, name: str, columns: Columns, *partitioning: str) -> None:
        """So that it can be read as a stream before anything is written. Idempotent: where the
        table exists, missing columns are added."""

    def append(self, rows: DataFrame, name: str, *partitioning: str) -> DataStreamWriter:
        """A streaming write, exactly once, not yet started; with its checkpoint."""
        return (
            rows.writeStream.format(self.format)
            .option("path", self.path(name))
            .option("checkpointLocation", self.checkpoint(name))
            .partitionBy(*partitioning)
        )

    def replace(self, rows: DataFrame, name: str, *partitioning: str) -> None:
        """Write `rows`, and delete what their partitions held before."""
        (
            rows.write.format(self.format)
            .mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .partitionBy(*partitioning)
            .save(self.path(name))
        )

    @abstractmethod
    def read_stream(self, spark: SparkSession, name: str, columns: Columns) -> DataFrame:
        """As a stream of the appended rows; each batch takes all there are."""

    @abstractmethod
    def read(self, spark: SparkSession, name: str, columns: Columns) -> DataFrame:
        """As it is now. Raises TableMissing where there is none."""

    def _add_missing(self, spark: SparkSession, table: str, columns: Columns) -> None:
        existing = spark.table(table).columns
        missing = {name: kind for name, kind in columns.items() if name not in existing}
        if missing:
            spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({ddl(missing)})")

    def _missing(self, name: str) -> TableMissing:
        return TableMissing(f"no {self.format} table {name} in {self.location}")


class ParquetTables(Tables):
    """Folders of Parquet files. The sink's log, `_spark_metadata`, lists the files that count:
    those of a batch that was cut off are there too, and are not listed."""

    format = "parquet"

    def create(self, spark: SparkSession, name: str, columns: Columns, *partitioning: str) -> None:
        path, system = _folder(spark, self.path(name))
        system.mkdirs(path)

    def read_stream(self, spark: SparkSession, name: str, columns: Columns) -> DataFrame:
        return spark.readStream.schema(ddl(columns)).parquet(self.path(name))

    def read(self, spark: SparkSession, name: str, columns: Columns) -> DataFrame:
        path, system = _folder(spark, self.path(name))
        if not system.exists(path):
            raise self._missing(name)
        return spark.read.schema(ddl(columns)).parquet(self.path(name))


class DeltaTables(Tables):
    """Delta tables, by path. Needs `io.delta:delta-spark`."""

    format = "delta"

    def session_settings(self) -> Mapping[str, str]:
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }

    def create(self, spark: SparkSession, name: str, columns: Columns, *partitioning: str) -> None:
        empty = spark.createDataFrame([], ddl(columns)).write.format("delta").mode("ignore")
        empty.partitionBy(*partitioning).save(self.path(name))
        self._add_missing(spark, f"delta.`{self.path(name)}`", columns)

    def read_stream(self, spark: SparkSession, name: str, columns: Columns) -> DataFrame:
        # A batch of the writer must not be split: its second part would come too late.
        return (
            spark.readStream.format("delta")
            .option("maxFilesPerTrigger", _EVERY_FILE)
            .load(self.path(name))
        )

    def read(self, spark: SparkSession, name: str, columns: Columns) -> DataFrame:
        try:
            return spark.read.format("delta").load(self.path(name))
        except PySparkException as error:
            raise self._missing(name) from error


def open_tables(format: str, location: str) -> Tables:
    """The history at `location`, a folder or a URI. Raises JobSettingWrong."""
    for kind in (ParquetTables, DeltaTables):
        if kind.format == format:
            return kind(location)
    raise JobSettingWrong(f"format {format!r}: takes {', '.join(FORMATS)}")


def _folder(spark: SparkSession, location: str) -> tuple[Any, Any]:
    """Hadoop's path and file system."""
    context: Any = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(location)
    return path, path.getFileSystem(context._jsc.hadoopConfiguration())

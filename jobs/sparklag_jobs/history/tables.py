"""The tables of the lag history: their columns, and how to write and read them."""

from __future__ import annotations

import json
import types
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sparklag_jobs.errors import JobSettingWrong, TableMissing
from sparklag_schemas.avro.schema import declared, without_logical_types
from sparklag_schemas.messages.lag_event import LagEvent, PartitionLag, TopicLag

CORRUPT: Final = "_corrupt"
"""The column for documents that do not have these types."""
_NOT_STORED: Final[Mapping[type, Collection[str]]] = {
    LagEvent: {
        *("observed_at", "processed_at", "origin", "activity", "batch", "planned_batch_id"),
        *("running_batch", "checkpoint_location", "exception", "cause", "measured_by"),
        *("driver_end", "spark_ui_url", "instance"),
        *("reason", "max_lag", "in_flight", "unknown_partitions", "lost_records", "other_run_id"),
        *("observation_offset", "status_since", "lag_trend", "catch_up_s", "catch_up_reason"),
        *("superseded_by", "application", "ends_by_itself", "runs", "mode"),
        *("trigger_interval_s", "unread_estimate", "behind_since", "rising_since"),
        *("min_headroom_records", "min_headroom_s", "loss_expected_at", "skew"),
        *("usual_batch_s", "usual_interval_s", "group", "commit_rate"),
    },
    TopicLag: {"cluster", "topic_id", "assigned", "isolation_level", "total_lag"},
    PartitionLag: {
        *("planned_offset", "headroom_s", "measured_at", "rewound_from", "reason"),
        *("open_transaction", "advanced_at", "rising_since"),
    },
}
_MAX_INT: Final = 2**31 - 1
_SIMPLE_TYPES: Final[Mapping[Any, str]] = {
    str: "string",
    bool: "boolean",
    int: "bigint",
    float: "double",
}


def stored_fields(message: type[Struct]) -> dict[str, str]:
    """Name and Spark type of each stored field of a message."""
    hints = get_type_hints(message, include_extras=True)
    left_out = _NOT_STORED.get(message, ())
    return {
        name: spark_type(hints[name]) for name in message.__struct_fields__ if name not in left_out
    }


def ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def event_schema() -> str:
    """The DDL schema of `from_json`: an event with its topics and their partitions."""
    return ddl({**EVENT_FIELDS, CORRUPT: "string"})


def avro_schema() -> str:
    """The Avro schema for reading such an event. Times are numbers, as in JSON."""
    event = _with_fields(without_logical_types(declared(LagEvent)))
    event["fields"].append({"name": CORRUPT, "type": ["null", "string"], "default": None})
    return json.dumps(event)


def _with_fields(node: Any) -> Any:
    """The Avro schema reduced to the records' stored fields, in their order."""
    match node:
        case {"type": "record", "name": name, "fields": fields} if name in _BY_RECORD:
            by_name = {field["name"]: field for field in fields}
            return {**node, "fields": [_with_fields(by_name[key]) for key in _BY_RECORD[name]]}
        case dict():
            return {key: _with_fields(value) for key, value in node.items()}
        case list():
            return [_with_fields(item) for item in node]
    return node


def spark_type(kind: Any) -> str:
    """The Spark type of a field's type. Raises TypeError if there is none."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        inner, *metas = arguments
        bounds = [meta.le for meta in metas if isinstance(meta, Meta) and meta.le is not None]
        fits_int = inner is int and any(bound <= _MAX_INT for bound in bounds)
        return "int" if fits_int else spark_type(inner)
    if origin in (Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not types.NoneType)
        return spark_type(inner)
    if origin is list:
        return f"array<{spark_type(arguments[0])}>"
    if origin is dict:
        return f"map<{spark_type(arguments[0])}, {spark_type(arguments[1])}>"
    if origin is Literal:
        return "string"
    if isinstance(kind, type) and issubclass(kind, Struct):
        return f"struct<{', '.join(f'{name}: {of}' for name, of in stored_fields(kind).items())}>"
    if kind not in _SIMPLE_TYPES:
        raise TypeError(f"{kind} has no Spark type here")
    return _SIMPLE_TYPES[kind]


EVENT_FIELDS: Final = stored_fields(LagEvent)
TOPIC_FIELDS: Final = stored_fields(TopicLag)
PARTITION_FIELDS: Final = stored_fields(PartitionLag)
_BY_RECORD: Final = {
    "LagEvent": EVENT_FIELDS,
    "TopicLag": TOPIC_FIELDS,
    "PartitionLag": PARTITION_FIELDS,
}
Format = Literal["parquet", "delta"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)
Columns = Mapping[str, str]
"""Spark types by column name."""


class Tables(ABC):
    """The tables of one history, each a folder `<location>/<name>`."""

    format: Format

    def __init__(self, location: str) -> None:
        self.location = location.rstrip("/")

    def path(self, name: str) -> str:
        return f"{self.location}/{name}"

    def checkpoint(self, name: str) -> str:
        return f"{self.location}/_checkpoints/{name}"

    def session_settings(self) -> Mapping[str, str]:
        return {}

    def require(self, name: str) -> None:
        """Raises TableMissing for a missing local folder, before Spark is started."""
        folder = self.location.removeprefix("file://")
        if "://" not in folder and not Path(folder.removeprefix("file:"), name).is_dir():
            raise self._missing(name)

    @abstractmethod
    def create(self, spark: SparkSession, name: str, columns: Columns, *partitioning: str) -> None:
        """Create the table, so that a stream can read it before the first write. Add missing
        columns to an existing table."""

    def append(self, rows: DataFrame, name: str, *partitioning: str) -> DataStreamWriter:
        """A streaming write with its checkpoint, exactly once, not started yet."""
        return (
            rows.writeStream.format(self.format)
            .option("path", self.path(name))
            .option("checkpointLocation", self.checkpoint(name))
            .partitionBy(*partitioning)
        )

    def replace(self, rows: DataFrame, name: str, *partitioning: str) -> None:
        """Write `rows`, and delete earlier rows of their partitions."""
        writer = rows.write.format(self.format).mode("overwrite").partitionBy(*partitioning)
        writer.option("partitionOverwriteMode", "dynamic").save(self.path(name))

    @abstractmethod
    def read_stream(self, spark: SparkSession, name: str, columns: Columns) -> DataFrame:
        """A stream of the appended rows. Each batch has all new rows."""

    @abstractmethod
    def read(self, spark: SparkSession, name: str, columns: Columns) -> DataFrame:
        """The table's current rows. Raises TableMissing."""

    def _missing(self, name: str) -> TableMissing:
        run = f"sparklag history run --output {self.location}"
        return TableMissing(f"no {self.format} table {name} in {self.location}: run `{run}` first")


class ParquetTables(Tables):
    """Folders of Parquet files. The sink's log `_spark_metadata` lists the valid files; files of an
    aborted batch are not listed."""

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
    """Delta tables by path. They need `io.delta:delta-spark`."""

    format = "delta"

    def session_settings(self) -> Mapping[str, str]:
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }

    def create(self, spark: SparkSession, name: str, columns: Columns, *partitioning: str) -> None:
        empty = spark.createDataFrame([], ddl(columns)).write.format("delta").mode("ignore")
        empty.partitionBy(*partitioning).save(self.path(name))
        table = f"delta.`{self.path(name)}`"
        existing = spark.table(table).columns
        missing = {name: kind for name, kind in columns.items() if name not in existing}
        if missing:
            spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({ddl(missing)})")

    def read_stream(self, spark: SparkSession, name: str, columns: Columns) -> DataFrame:
        # A batch of the writer must not be split: its second part would be late.
        reader = spark.readStream.format("delta").option("maxFilesPerTrigger", _MAX_INT)
        return reader.load(self.path(name))

    def read(self, spark: SparkSession, name: str, columns: Columns) -> DataFrame:
        try:
            return spark.read.format("delta").load(self.path(name))
        except PySparkException as error:
            raise self._missing(name) from error


def open_tables(format: str, location: str) -> Tables:
    """The tables at `location`, a folder or a URI. Raises JobSettingWrong."""
    for kind in (ParquetTables, DeltaTables):
        if kind.format == format:
            return kind(location)
    raise JobSettingWrong(f"format {format!r}: takes {', '.join(FORMATS)}")


def _folder(spark: SparkSession, location: str) -> tuple[Any, Any]:
    """Hadoop's path and file system of a location."""
    context: Any = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(location)
    return path, path.getFileSystem(context._jsc.hadoopConfiguration())

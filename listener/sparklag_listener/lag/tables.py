"""Lag events as rows and typed columns, for pandas and Spark.

The columns are the fields of the messages: a new field has a column without a change here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import inspect

from sparklag_schemas import LagEvent, PartitionRecord
from sparklag_schemas.errors import MissingPackage
from sparklag_schemas.messages.bounds import MAX_EPOCH_MS
from sparklag_schemas.messages.lag_event import partition_record

if TYPE_CHECKING:
    import pandas as pd

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_PANDAS_END: Final = datetime(2262, 1, 1, tzinfo=timezone.utc)
_QUERY_FIRST: Final = ("query", "status", "total_lag", "max_lag", "max_time_lag_s", "reason")
_PARTITION_FIRST: Final = ("query", "topic", "partition", "status", "lag", "time_lag_s", "reason")
_PANDAS_TYPES: Final[Mapping[str, str]] = {
    "string": "string",
    "boolean": "boolean",
    "bigint": "Int64",
    "double": "Float64",
    "timestamp": "datetime64[ns, UTC]",
}
"""The pandas type of each Spark type. Nullable: an unknown value is neither 0 nor NaN."""


@dataclass(frozen=True)
class Table:
    """Rows of Python values in the order of the columns; times are datetimes in UTC."""

    columns: Mapping[str, str]
    """Name, and Spark's type."""
    rows: Sequence[tuple[Any, ...]]

    def to_pandas(self) -> pd.DataFrame:
        """A pandas DataFrame. Times after the year 2261, which pandas does not have, are missing.

        Raises MissingPackage.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingPackage("to_pandas() needs pandas: pip install pandas") from error
        series = {}
        for index, (name, kind) in enumerate(self.columns.items()):
            values = [row[index] for row in self.rows]
            if kind == "timestamp":
                values = [None if at is None or at >= _PANDAS_END else at for at in values]
            series[name] = pd.Series(values, dtype=_PANDAS_TYPES[kind])
        frame: pd.DataFrame = pd.DataFrame(series)
        return frame

    def to_spark(self, spark: Any) -> Any:
        """A DataFrame of that session, empty where there are no rows."""
        schema = ", ".join(f"`{name}` {kind}" for name, kind in self.columns.items())
        return spark.createDataFrame(list(self.rows), schema)


def query_table(events: Iterable[LagEvent]) -> Table:
    """A row for each query: the fields of a lag event that are not nested."""
    return _table(_QUERY_COLUMNS, events)


def partition_table(events: Iterable[LagEvent]) -> Table:
    """A row for each partition of each source: see PartitionRecord."""
    records = (
        partition_record(event, topic, partition)
        for event in events
        for topic in event.topics
        for partition in topic.partitions
    )
    return _table(_PARTITION_COLUMNS, records)


def _table(columns: Mapping[str, str], messages: Iterable[msgspec.Struct]) -> Table:
    is_time = [kind == "timestamp" for kind in columns.values()]
    rows = []
    for message in messages:
        values = [getattr(message, name) for name in columns]
        pairs = zip(values, is_time, strict=True)
        rows.append(tuple(_datetime(value) if of_time else value for value, of_time in pairs))
    return Table(columns, rows)


def _datetime(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else _EPOCH + timedelta(milliseconds=at_ms)


def _columns(message: type[msgspec.Struct], first: Collection[str]) -> dict[str, str]:
    info = inspect.type_info(message)
    assert isinstance(info, inspect.StructType)
    kinds = {field.name: _spark_type(field.type) for field in info.fields}
    ordered = [*first, *(name for name in kinds if name not in first)]
    return {name: kind for name in ordered if (kind := kinds[name]) is not None}


def _spark_type(kind: inspect.Type) -> str | None:
    """None: it is nested."""
    match kind:
        case inspect.Metadata():
            return _spark_type(kind.type)
        case inspect.UnionType():
            (inner,) = (each for each in kind.types if not isinstance(each, inspect.NoneType))
            return _spark_type(inner)
        case inspect.IntType():
            return "timestamp" if kind.le == MAX_EPOCH_MS else "bigint"
        case inspect.FloatType():
            return "double"
        case inspect.BoolType():
            return "boolean"
        case inspect.StrType():
            return "string"
    return None


_QUERY_COLUMNS: Final = _columns(LagEvent, _QUERY_FIRST)
_PARTITION_COLUMNS: Final = _columns(PartitionRecord, _PARTITION_FIRST)

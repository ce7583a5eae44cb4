"""Whether an event's query was as well as it should be: the thresholds of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.errors import IllegalArgumentException
from pyspark.sql import Column, SparkSession
from pyspark.sql.functions import lit, when

from sparklag_pipeline.errors import JobSettingWrong
from sparklag_schemas.settings import Thresholds

_WELL: Final = ("OK", "FINISHED")


def within_target(
    thresholds: Mapping[str, Thresholds],
    *,
    query: Column,
    query_id: Column,
    status: Column,
    total_lag: Column,
    max_time_lag_s: Column,
) -> Column:
    """True, false, or null where the lag that decides is not known.

    As `Settings.thresholds_of`: the first pattern that fits the whole name or id counts. Its
    `max_lag` and `max_time_lag_s` are the target; where it has neither, and where none fits, the
    status is: OK or FINISHED.
    """
    # A chain of `when` cannot begin with none.
    found = when(lit(False), lit(None).cast("boolean"))
    for pattern, one in thresholds.items():
        whole = _whole(pattern)
        fits = query.rlike(whole) | query_id.rlike(whole)
        found = found.when(fits, _target(one, status, total_lag, max_time_lag_s))
    return found.otherwise(_target(Thresholds(), status, total_lag, max_time_lag_s))


def _target(one: Thresholds, status: Column, total_lag: Column, max_time_lag_s: Column) -> Column:
    if one.max_lag is None and one.max_time_lag_s is None:
        return when(total_lag.isNotNull(), status.isin(*_WELL))
    well = lit(True)
    # In SQL's logic "not known and false" is false: one that is missed is enough.
    if one.max_lag is not None:
        well = well & (total_lag <= one.max_lag)
    if one.max_time_lag_s is not None:
        well = well & (max_time_lag_s <= one.max_time_lag_s)
    return well


def _whole(pattern: str) -> str:
    return rf"\A(?:{pattern})\z"


def check_patterns(spark: SparkSession, thresholds: Mapping[str, Thresholds]) -> None:
    """Raises JobSettingWrong for a pattern that is one to Python, and none to Spark."""
    context: Any = spark.sparkContext
    for pattern in thresholds:
        try:
            context._jvm.java.util.regex.Pattern.compile(_whole(pattern))
        # What Py4J raises for Java's errors, once there is a Spark session.
        except IllegalArgumentException as error:
            said = str(error).partition("\n")[0]
            raise JobSettingWrong(
                f"thresholds.{pattern!r} is not a regular expression that Spark (Java) takes:"
                f" {said}"
            ) from error

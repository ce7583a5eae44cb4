"""Lag as data frames: what is unknown is missing, and times are timestamps."""

from __future__ import annotations

import msgspec
import pandas as pd

from sparklag_listener.lag.lags import Lags
from sparklag_schemas import LagEvent, PartitionLag, PartitionRecord, TopicLag
from sparklag_schemas.messages.bounds import MAX_EPOCH_MS
from tests.messages import QUERY_ID, lag_event
from tests.scripts import run_script

UNKNOWN = lag_event(query_id="b", query=None, total_lag=None, max_lag=None, processed_at=None)
NESTED = {"batch", "running_batch", "group", "runs", "topics", "open_transaction"}
WITHOUT_PANDAS = """
import sys
sys.modules["pandas"] = None
from sparklag_listener.lag.lags import Lags
from sparklag_schemas.errors import MissingPackage
try:
    Lags().to_pandas()
except MissingPackage as missing:
    print(missing)
"""


def test_each_query_is_a_row_with_every_field_that_is_not_nested() -> None:
    frame = Lags([lag_event(), UNKNOWN]).to_pandas()
    assert set(frame.columns) == set(LagEvent.__struct_fields__) - NESTED
    assert list(frame["query_id"]) == [QUERY_ID, "b"]
    assert list(frame.columns[:3]) == ["query", "status", "total_lag"]


def test_an_unknown_lag_is_missing_and_makes_no_float_of_the_others() -> None:
    frame = Lags([lag_event(total_lag=2**53 + 1), UNKNOWN]).to_pandas()
    assert str(frame["total_lag"].dtype) == "Int64"
    assert frame["total_lag"][0] == 2**53 + 1
    assert frame["total_lag"][1] is pd.NA
    assert frame["max_time_lag_s"][0] is pd.NA
    assert pd.isna(frame["query"][1])


def test_times_are_timestamps_in_utc_to_the_millisecond() -> None:
    event = lag_event(processed_at=1_790_000_000_123, loss_expected_at=MAX_EPOCH_MS)
    frame = Lags([event, UNKNOWN]).to_pandas()
    assert frame["processed_at"][0] == pd.Timestamp("2026-09-21T14:13:20.123Z")
    assert frame["processed_at"][1] is pd.NaT
    assert frame["loss_expected_at"][0] is pd.NaT, "pandas has no such time"


def test_each_partition_of_each_source_is_a_row() -> None:
    topics = [
        TopicLag(
            topic="orders",
            source=source,
            partitions=[
                PartitionLag(partition=0, processed_offset=5, latest_offset=70, lag=65),
                PartitionLag(partition=1),
            ],
        )
        for source in (0, 1)
    ]
    frame = Lags([lag_event(topics=topics)]).to_pandas(partitions=True)
    assert set(frame.columns) == set(PartitionRecord.__struct_fields__) - NESTED
    places = list(zip(frame["topic"], frame["source"], frame["partition"], strict=True))
    assert places == [("orders", 0, 0), ("orders", 0, 1), ("orders", 1, 0), ("orders", 1, 1)]
    assert list(frame["lag"].fillna(-1)) == [65, -1, 65, -1]


def test_no_query_is_a_frame_without_rows_and_with_the_same_types() -> None:
    for partitions in (False, True):
        empty = Lags().to_pandas(partitions=partitions)
        full = Lags([lag_event()]).to_pandas(partitions=partitions)
        assert len(empty) == 0
        assert list(empty.dtypes) == list(full.dtypes)


def test_without_pandas_one_line_reports_what_to_install() -> None:
    done = run_script(WITHOUT_PANDAS)
    assert done.lines == ["to_pandas() needs pandas: pip install pandas"], done.errors


def test_lags_are_a_sequence_that_shows_a_line_whatever_is_in_a_name() -> None:
    hostile = msgspec.structs.replace(UNKNOWN, query="a\x1b[31m\n\u202eb")
    lags = Lags([lag_event(), hostile])
    assert len(lags) == 2
    assert lags[0].total_lag == 65
    assert [event.query_id for event in lags] == [QUERY_ID, "b"]
    assert repr(lags) == r"<Lags: orders OK lag 65, a\x1b[31m\n\u202eb OK lag unknown>"
    assert repr(Lags()) == "<Lags: no query>"

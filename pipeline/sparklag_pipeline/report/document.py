"""The report as one JSON document, and as CSV. Both are stable: fields are only added.

Times are epoch milliseconds, durations seconds, lags records, rates records a second. What is not
known is null (in CSV: empty), never 0.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import msgspec

from sparklag_pipeline.report.query_report import QueryReport
from sparklag_schemas.printable import printable

_FORMULAS: Final = ("=", "+", "-", "@")
FORMAT_VERSION: Final = "1.0"

CSV_COLUMNS: Final = (
    "cluster",
    "query_id",
    "query",
    "share_within_target",
    "known_s",
    "within_target_s",
    "episodes",
    "longest_episode_s",
    "lag_p50",
    "lag_p95",
    "lag_p99",
    "lag_max",
    "time_lag_p50_s",
    "time_lag_p95_s",
    "time_lag_p99_s",
    "time_lag_max_s",
    "produced",
    "processed",
    "trend",
    "trend_records_per_hour",
    "peak_input_rate",
    "batch_rate",
    "utilisation",
    "capacity_passed_at",
)


def as_json(reports: Sequence[QueryReport], since_ms: int, until_ms: int) -> str:
    """The document, with a line's end."""
    found = {
        "format_version": FORMAT_VERSION,
        "since": since_ms,
        "until": until_ms,
        "queries": [_document(report) for report in reports],
    }
    return json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _document(report: QueryReport) -> dict[str, Any]:
    found = report.capacity
    return {
        **_begun(report),
        "episodes": [
            {
                "from": one.from_ms,
                "to": one.to_ms,
                "duration_s": one.duration_s,
                "max_lag": one.max_lag,
                "max_time_lag_s": one.max_time_lag_s,
            }
            for one in report.episodes
        ],
        "longest_episode_s": None if report.longest is None else report.longest.duration_s,
        "lag": None if report.lag is None else asdict(report.lag),
        "time_lag_s": None if report.time_lag_s is None else asdict(report.time_lag_s),
        "produced": report.produced,
        "processed": report.processed,
        "worst_partitions": [msgspec.structs.asdict(one) for one in report.worst],
        "trend": None
        if report.trend is None
        else {
            "direction": report.trend.direction,
            "records_per_hour": report.trend.slope,
            "tau": report.trend.tau,
            "p_value": report.trend.p_value,
        },
        "capacity": {
            "peak_input_rate": found.peak_input_rate,
            "batch_rate": found.batch_rate,
            "utilisation": found.utilisation,
            "passed_at": found.passed_at_ms,
            "reason": found.reason,
        },
    }


def _begun(report: QueryReport) -> dict[str, Any]:
    """What both forms begin with."""
    return {
        "cluster": report.cluster,
        "query_id": report.query_id,
        "query": report.query,
        "share_within_target": report.share_within_target,
        "known_s": report.known_s,
        "within_target_s": report.within_target_s,
    }


def as_csv(reports: Sequence[QueryReport]) -> str:
    """One row for each query, under `CSV_COLUMNS`."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for report in reports:
        writer.writerow({name: _cell(value) for name, value in _row(report).items()})
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A text that a spreadsheet takes for a text, on one line."""
    if not isinstance(value, str):
        return value
    value = printable(value, len(value))
    return f"'{value}" if value.startswith(_FORMULAS) else value


def _row(report: QueryReport) -> dict[str, Any]:
    row: dict[str, Any] = {
        **_begun(report),
        "episodes": len(report.episodes),
        "longest_episode_s": report.longest.duration_s if report.longest else None,
        "produced": report.produced,
        "processed": report.processed,
        "trend": report.trend.direction if report.trend else None,
        "trend_records_per_hour": report.trend.slope if report.trend else None,
        "peak_input_rate": report.capacity.peak_input_rate,
        "batch_rate": report.capacity.batch_rate,
        "utilisation": report.capacity.utilisation,
        "capacity_passed_at": report.capacity.passed_at_ms,
    }
    if report.lag is not None:
        row |= {f"lag_{mark}": value for mark, value in asdict(report.lag).items()}
    if report.time_lag_s is not None:
        row |= {f"time_lag_{mark}_s": value for mark, value in asdict(report.time_lag_s).items()}
    return row

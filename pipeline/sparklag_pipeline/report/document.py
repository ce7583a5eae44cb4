"""The report as one JSON document, and as CSV. Both are stable: fields are only added.

Times are epoch milliseconds, durations seconds, lags records, rates records a second. Unknown
values are null (in CSV: empty), never 0.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from sparklag_pipeline.report.query_report import QueryReport
from sparklag_schemas.printable import printable

FORMAT_VERSION: Final = "1.0"

_FORMULAS: Final = ("=", "+", "-", "@")

_MARKS: Final = ("p50", "p95", "p99", "max")
_CSV: Final = {
    **{name: name for name in ("cluster", "query_id", "query", "share_within_target")},
    **{name: name for name in ("known_s", "within_target_s", "episodes", "longest_episode_s")},
    **{f"lag_{mark}": f"lag.{mark}" for mark in _MARKS},
    **{f"time_lag_{mark}_s": f"time_lag_s.{mark}" for mark in _MARKS},
    "produced": "produced",
    "processed": "processed",
    "trend": "trend.direction",
    "trend_records_per_hour": "trend.records_per_hour",
    "peak_input_rate": "capacity.peak_input_rate",
    "batch_rate": "capacity.batch_rate",
    "utilisation": "capacity.utilisation",
    "capacity_passed_at": "capacity.passed_at",
}
"""Paths in the document, by column. Of a list, its length."""

CSV_COLUMNS: Final = tuple(_CSV)


def as_json(reports: Sequence[QueryReport], since_ms: int, until_ms: int) -> str:
    """The document, with a newline at its end."""
    document = {
        "format_version": FORMAT_VERSION,
        "since": since_ms,
        "until": until_ms,
        "queries": [_document(report) for report in reports],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _document(report: QueryReport) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(report)
    del document["minutes"]  # those are the charts'
    return document


def as_csv(reports: Sequence[QueryReport]) -> str:
    """One row for each query, under `CSV_COLUMNS`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for document in map(_document, reports):
        writer.writerow(_cell(document, path) for path in _CSV.values())
    return text.getvalue()


def _cell(value: Any, path: str) -> Any:
    """The document's value there; a text on one line, that no spreadsheet takes for a formula."""
    for name in path.split("."):
        value = None if value is None else value[name]
    if isinstance(value, list):
        return len(value)
    if not isinstance(value, str):
        return value
    value = printable(value, len(value))
    return f"'{value}" if value.startswith(_FORMULAS) else value

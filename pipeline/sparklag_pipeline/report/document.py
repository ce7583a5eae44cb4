"""The report as one JSON document. It is stable: fields are only added.

Times are epoch milliseconds, durations seconds, lags records, rates records a second. Unknown
values are null, never 0.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from sparklag_pipeline.report.query_report import QueryReport

FORMAT_VERSION: Final = "1.0"


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

"""Summaries of queries for tests: a test names what it is about, and nothing else."""

from __future__ import annotations

from typing import Any

from sparklag_schemas.presentation.rows import Summary
from sparklag_service.cli.top.state import LagPage

NOW_MS = 1_790_000_000_000


def summary(query: str = "orders", **fields: Any) -> Summary:
    """A healthy query, measured now: 65 behind by 2 s."""
    return Summary(
        **{
            "query_id": f"id-of-{query}",
            "query": query,
            "status": "OK",
            "measured_at": NOW_MS,
            "total_lag": 65,
            "max_time_lag_s": 2.0,
            "topics": ["clicks"],
            **fields,
        }
    )


def page(*queries: Summary, **fields: Any) -> LagPage:
    return LagPage(queries=list(queries), **fields)

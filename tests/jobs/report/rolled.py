"""Windows of roll-ups for tests: a test names what it is about."""

from __future__ import annotations

from typing import Any

from sparklag_jobs.history.rollups import RolledWindow

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
START_MS = 1_790_035_200_000


def minute(number: int, **fields: Any) -> RolledWindow:
    return RolledWindow(
        **{
            "cluster": "default",
            "query_id": "id",
            "query": "orders",
            "start_ms": START_MS + number * MINUTE_MS,
            "known_s": 60.0,
            "within_target_s": 60.0,
            "lag": (1.0, 2.0, 3.0, 4.0),
            "time_lag_s": (0.1, 0.2, 0.3, 0.4),
            "produced": 10,
            "processed": 9,
            **fields,
        }
    )


def dark(number: int, **fields: Any) -> RolledWindow:
    unknown = dict.fromkeys(("lag", "time_lag_s", "produced", "processed"))
    return minute(number, known_s=0.0, within_target_s=0.0, **unknown, **fields)


def hour(number: int, **fields: Any) -> RolledWindow:
    return minute(0, **{"start_ms": START_MS + number * HOUR_MS, "known_s": 3600.0, **fields})

"""What a full history takes of a process' memory, against its ceiling; and what it costs.

Each size runs in a process of its own: memory that was freed does not always go back.
"""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from benchmarks.comparison import Row, print_table, say
from sparklag_service.history.archive import Archive
from sparklag_service.history.rows import Totals, row_of

_CEILING_MB: Final = 64
_QUERIES: Final = (100, 1_000, 10_000)
_FINEST_MS: Final = 15_000
_DAY_MS: Final = 86_400_000
_NOW_MS: Final = 1_790_000_000_000
_EVENTS: Final = 2_000_000
"""In all, over a day, and at least one in each quarter of an hour."""
_MB: Final = 1024 * 1024


def run() -> list[Row]:
    """Rows for each number of queries."""
    rows = []
    for queries in _QUERIES:
        say(f"history_memory: a day of {queries:,} queries")
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        process = multiprocessing.get_context("spawn").Process(target=_fill, args=(queries, theirs))
        process.start()
        # Else its end is not told: `recv` would wait for ever.
        theirs.close()
        grown_mb, kept, cpu_us = ours.recv()
        process.join()
        rows.append(
            Row(
                f"history, {queries:,} queries, a day: memory",
                f"+{grown_mb:.0f} MB",
                f"{_CEILING_MB} MB, the ceiling",
                f"{grown_mb / _CEILING_MB:.2f}×",
                "≤ 1×",
                grown_mb <= _CEILING_MB,
            )
        )
        rows.append(
            Row(
                f"history, {queries:,} queries, a day: rows of a query; CPU of an event",
                f"{kept}; {cpu_us:.1f} µs",
                "",
            )
        )
    return rows


def _fill(queries: int, pipe: Connection) -> None:
    """Say by how much memory has grown, how many rows a query has, and the CPU of an event."""
    before_mb = _held_mb()
    archive = Archive(_CEILING_MB * _MB, _FINEST_MS, _DAY_MS)
    step_ms = max(_FINEST_MS, min(_DAY_MS // (_EVENTS // queries), 900_000))
    names = [f"00000000-0000-4000-8000-{query:012d}" for query in range(queries)]
    events = 0
    cpu_s = time.process_time()
    for at_ms in range(_NOW_MS - _DAY_MS, _NOW_MS, step_ms):
        for name in names:
            totals = Totals(
                query_id=name,
                measured_at=at_ms,
                status="OK",
                total_lag=at_ms % 1_000,
                max_time_lag_s=1.5,
                input_rate=10.0,
                processed_rate=11.0,
            )
            archive.add(name, row_of(totals), at_ms)
        events += queries
    cpu_s = time.process_time() - cpu_s
    kept = len(archive.rows(names[-1], _NOW_MS))
    pipe.send((_held_mb() - before_mb, kept, cpu_s / events * 1e6))


def _held_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the system does not say how much memory a process takes")


if __name__ == "__main__":
    print_table(run())

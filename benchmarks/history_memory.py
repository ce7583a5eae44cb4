"""What a full history takes of a process' memory, against its ceiling; and what an event costs it,
against a table in SQLite's memory, which joins the same events into as many rows and thins none.

Each side runs in a process of its own: memory that was freed does not always go back.
"""

from __future__ import annotations

import multiprocessing
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.comparison import Row, say
from sparklag_service.history.history import Archive
from sparklag_service.history.rows import BatchTotals, Totals, row_of

_CEILING_MB: Final = 64
_QUERIES: Final = (100, 1_000, 10_000)
_FINEST_MS: Final = 15_000
_DAY_MS: Final = 86_400_000
_NOW_MS: Final = 1_790_000_000_000
_EVENTS: Final = 2_000_000
"""In all, over a day, and at least one in each quarter of an hour."""
_MB: Final = 1024 * 1024


class Filled(NamedTuple):
    """What a side took for a day of events."""

    grown_mb: float
    rows: int
    """Of a query."""
    cpu_us: float
    """Of an event."""


def run() -> list[Row]:
    """Rows for each number of queries."""
    rows = []
    for queries in _QUERIES:
        say(f"history_memory: a day of {queries:,} queries")
        ours = _in_process(_fill_archive, queries, 0)
        table = _in_process(_fill_table, queries, ours.rows)
        what = f"history, {queries:,} queries, a day"
        rows.append(
            Row(
                f"{what}: memory",
                f"+{ours.grown_mb:.0f} MB",
                f"{_CEILING_MB} MB, the ceiling",
                f"{ours.grown_mb / _CEILING_MB:.2f}×",
                "≤ 1×",
                ours.grown_mb <= _CEILING_MB,
            )
        )
        rows.append(
            Row(
                f"{what}: rows of a query; memory",
                f"{ours.rows}; +{ours.grown_mb:.0f} MB",
                f"{table.rows}; +{table.grown_mb:.0f} MB, SQLite",
                f"{ours.grown_mb / table.grown_mb:.2f}×",
            )
        )
        rows.append(
            Row(
                f"{what}: CPU of an event",
                f"{ours.cpu_us:.1f} µs",
                f"{table.cpu_us:.1f} µs, SQLite",
                f"{ours.cpu_us / table.cpu_us:.2f}×",
            )
        )
    return rows


_Fill = Callable[[int, int, Connection], None]


def _in_process(fill: _Fill, queries: int, rows: int) -> Filled:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=fill, args=(queries, rows, theirs))
    process.start()
    # Else its end is not told: `recv` would wait for ever.
    theirs.close()
    filled: Filled = ours.recv()
    process.join()
    return filled


def _fill_archive(queries: int, _: int, pipe: Connection) -> None:
    before_mb = _held_mb()
    archive = Archive(_CEILING_MB * _MB, _FINEST_MS, _DAY_MS)
    events = 0
    cpu_s = time.process_time()
    for totals in _events(queries):
        archive.add(totals.query_id, totals, totals.measured_at)
        events += 1
    cpu_s = time.process_time() - cpu_s
    rows = len(archive.rows(_name(queries - 1), _NOW_MS))
    pipe.send(Filled(_held_mb() - before_mb, rows, cpu_s / events * 1e6))


def _fill_table(queries: int, rows: int, pipe: Connection) -> None:
    """With slots of one width, so that a query has about that many rows."""
    before_mb = _held_mb()
    table = sqlite3.connect(":memory:")
    table.execute(
        "CREATE TABLE history (query INTEGER, slot INTEGER, measured_at INTEGER, lag INTEGER,"
        " max_lag INTEGER, max_age REAL, input_rate REAL, processed_rate REAL, status INTEGER,"
        " PRIMARY KEY (query, slot)) WITHOUT ROWID"
    )
    numbers = {_name(query): query for query in range(queries)}
    width_ms = _DAY_MS // rows
    events = 0
    cpu_s = time.process_time()
    for totals in _events(queries):
        row = row_of(totals)
        table.execute(
            "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
            " measured_at = excluded.measured_at, lag = excluded.lag,"
            " max_lag = max(max_lag, excluded.max_lag), max_age = max(max_age, excluded.max_age),"
            " input_rate = excluded.input_rate, processed_rate = excluded.processed_rate,"
            " status = excluded.status",
            (
                numbers[totals.query_id],
                row.measured_at_ms // width_ms,
                row.measured_at_ms,
                row.total_lag,
                row.max_total_lag,
                row.max_time_lag_s,
                row.input_rate,
                row.processed_rate,
                0,
            ),
        )
        events += 1
    cpu_s = time.process_time() - cpu_s
    (kept,) = table.execute(
        "SELECT count(*) FROM history WHERE query = ?", (queries - 1,)
    ).fetchone()
    pipe.send(Filled(_held_mb() - before_mb, kept, cpu_s / events * 1e6))


def _events(queries: int) -> Iterator[Totals]:
    """A day of them, all queries in turn."""
    step_ms = max(_FINEST_MS, min(_DAY_MS // (_EVENTS // queries), 900_000))
    names = [_name(query) for query in range(queries)]
    batch = BatchTotals(duration_ms=6_987, phases_ms={"addBatch": 3_918, "walCommit": 93})
    for at_ms in range(_NOW_MS - _DAY_MS, _NOW_MS, step_ms):
        for name in names:
            yield Totals(
                query_id=name,
                measured_at=at_ms,
                status="OK",
                cause="progress",
                batch=batch,
                total_lag=random.randrange(10_000_000),
                max_time_lag_s=round(random.uniform(0, 1_000), 3),
                input_rate=round(random.uniform(0, 10_000), 3),
                processed_rate=round(random.uniform(0, 10_000), 3),
            )


def _name(query: int) -> str:
    return f"00000000-0000-4000-8000-{query:012d}"


def _held_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the system does not say how much memory a process takes")

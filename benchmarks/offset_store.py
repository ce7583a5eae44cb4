"""What it costs to keep every batch's offsets, and to look up where a query was."""

from __future__ import annotations

import asyncio

from benchmarks.comparison import Row
from benchmarks.store_databases import databases
from benchmarks.store_lookup import lookup
from benchmarks.store_recording import recording


def run() -> list[Row]:
    """Rows for PostgreSQL, SQLite and MariaDB."""
    rows = []
    with databases() as running:
        for measure in (recording, lookup):
            for database in running:
                rows += asyncio.run(measure(database))
    return rows

"""Every benchmark but the longest, and one table. `python -m benchmarks NAME...` runs those."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module

from benchmarks.busy_processes import busy_processes
from benchmarks.comparison import Row, print_table, say

NAMES = (
    "listener_cost",
    "start_times",
    "running_batch",
    "event_latency",
    "measuring_pass",
    "evaluation",
    "time_lag",
    "record_times",
    "scrape",
    "group_offsets",
    "commit_visibility",
    "service_memory",
    "checkpoint_polling",
    "checkpoint_delay",
    "publishing",
    "live_stream",
    "slow_clients",
    "http_auth",
    "page",
    "history_memory",
    "limits_memory",
    "offset_store",
    "lag_history",
    "restart",
    "first_event",
)
BUSY = "--busy"
LONG = ("scale", "soak")
"""Run by name only: most of an hour, and half of one."""


def main(names: Sequence[str]) -> int:
    """Exit code: 0 when all have run, whatever they found; 1 where one could not; 2 for a name."""
    unknown = set(names) - {*NAMES, *LONG}
    if unknown:
        say(
            f"no such benchmark: {', '.join(sorted(unknown))} (there are {', '.join(NAMES + LONG)})"
        )
        return 2
    rows: list[Row] = []
    failed = []
    for name in names or NAMES:
        try:
            run: Callable[[], list[Row]] = import_module(f"benchmarks.{name}").run
            rows += run()
        except Exception:
            # The others' figures are worth having all the same.
            failed.append(name)
            say(f"{name} failed: {traceback.format_exc()}")
    print_table(rows)
    return 1 if failed else 0


if __name__ == "__main__":
    arguments = sys.argv[1:]
    with busy_processes(arguments.count(BUSY)):
        sys.exit(main([each for each in arguments if each != BUSY]))

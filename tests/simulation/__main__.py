"""`python -m tests.simulation 1 1000 --hours 4` runs seeds on all cores and prints digests."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.simulation.invariants import Violation
from tests.simulation.rules import RULES
from tests.simulation.world import simulate


def main() -> int:
    """1 where a seed shows a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("last", type=int, nargs="?", help="the last one; default: the first")
    parser.add_argument("--hours", type=float, default=4.0, help="simulated, of each; default: 4")
    parser.add_argument("--rules", nargs="*", choices=RULES, default=RULES, help="default: all")
    args = parser.parse_args()
    seeds = range(args.first, (args.first if args.last is None else args.last) + 1)
    failed = False
    with ProcessPoolExecutor() as pool:
        for violated, text in pool.map(partial(_run, args.hours, args.rules), seeds):
            failed |= violated
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()
    return int(failed)


def _run(hours: float, rules: list[str], seed: int) -> tuple[bool, str]:
    try:
        trace = simulate(seed, hours, rules)
    except Violation as violation:
        return True, str(violation)
    return False, f"seed {seed}: {trace.records} records, digest {trace.digest}"


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.simulation 1 1000 --hours 4`: runs seeds, and prints each one's digest."""

from __future__ import annotations

import argparse
import sys

from tests.simulation.invariants import Violation
from tests.simulation.world import simulate


def main() -> int:
    """1 where a seed shows a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("last", type=int, nargs="?", help="the last one; default: the first")
    parser.add_argument("--hours", type=float, default=4.0, help="simulated, of each; default: 4")
    args = parser.parse_args()
    failed = False
    for seed in range(args.first, (args.first if args.last is None else args.last) + 1):
        try:
            trace = simulate(seed, args.hours)
        except Violation as violation:
            failed = True
            sys.stdout.write(f"{violation}\n")
        else:
            sys.stdout.write(f"seed {seed}: {trace.records} records, digest {trace.digest}\n")
        sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

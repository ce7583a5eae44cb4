"""How everything here is compared: samples of both sides in turn, and the ratio of medians.

A machine that slows down in the middle slows both sides alike, so the ratio stays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median
from typing import Final

_TIMES: Final = "\u00d7"

Sampler = Callable[[], Sequence[float]]


@dataclass(frozen=True)
class Row:
    """One line of the table. `ratio` and `reached` are None for what is only reported."""

    what: str
    ours: str
    against: str
    ratio: str = ""
    reach: str = ""
    reached: bool | None = None

    def cells(self) -> tuple[str, ...]:
        """As shown."""
        verdict = {True: "yes", False: "NO", None: ""}[self.reached]
        return (self.what, self.ours, self.against, self.ratio, self.reach, verdict)


def in_turn(rounds: int, ours: Sampler, other: Sampler) -> tuple[list[float], list[float]]:
    """Samples of both, taken A B, B A, A B ...: neither always has the better place."""
    taken: dict[Sampler, list[float]] = {ours: [], other: []}
    for number in range(rounds):
        for sampler in (ours, other) if number % 2 == 0 else (other, ours):
            taken[sampler] += sampler()
    return taken[ours], taken[other]


def at_most(
    what: str, ours: Sequence[float], against: str, other: Sequence[float], reach: float
) -> Row:
    """Ours may take `reach` times what the other takes. Samples in milliseconds."""
    ratio = median(ours) / median(other)
    reached = ratio <= reach
    return Row(
        what, ms(ours), f"{ms(other)}, {against}", times(ratio), f"≤ {times(reach)}", reached
    )


def within(
    what: str,
    ours: Sequence[float],
    against: str,
    other: Sequence[float],
    budget_ms: float | None,
) -> Row:
    """Ours may take `budget_ms`, whatever the other takes; without, it is only reported. Samples
    in milliseconds."""
    return Row(
        what,
        ms(ours),
        f"{ms(other)}, {against}",
        times(median(ours) / median(other)),
        f"≤ {budget_ms:g} ms" if budget_ms else "",
        median(ours) <= budget_ms if budget_ms else None,
    )


def cheaper(
    what: str, ours: Sequence[float], against: str, other: Sequence[float], reach: float
) -> Row:
    """The other takes at least `reach` times what ours takes. Samples in milliseconds."""
    ratio = median(other) / median(ours)
    reached = ratio >= reach
    return Row(
        what, ms(ours), f"{ms(other)}, {against}", times(ratio), f"≥ {times(reach)}", reached
    )


def times(ratio: float) -> str:
    """A ratio as shown."""
    return f"{ratio:.3g}{_TIMES}"


def ms(samples: Sequence[float]) -> str:
    """Their median."""
    return f"{median(samples):.2f} ms"


def print_table(rows: Iterable[Row]) -> None:
    """The rows as a Markdown table that is also readable as it stands."""
    head = ("what", "ours, median", "against, median", "ratio", "reach", "reached")
    lines = [head, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip_longest(*lines, fillvalue="")]
    lines.insert(1, tuple("-" * width for width in widths))
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print(f"| {' | '.join(cells)} |")


def say(text: str) -> None:
    """Progress, apart from the table."""
    print(text, file=sys.stderr, flush=True)

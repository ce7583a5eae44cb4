"""Whether a series rises or falls, and how fast: by ranks and medians, which outliers do not move.

The slope is the median of all pairs' slopes (P. K. Sen, "Estimates of the regression coefficient
based on Kendall's tau", J. Am. Stat. Assoc. 63, 1968, after H. Theil, 1950). Whether it is one at
all is Kendall's tau, tested as Mann does: H. B. Mann, "Nonparametric tests against trend",
Econometrica 13, 1945; M. G. Kendall, "Rank Correlation Methods", 1948, for the variance with ties.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

Direction = Literal["rising", "falling", "steady"]

FEWEST_POINTS: Final = 8
"""Below, the normal distribution that the test takes is far off."""
MOST_POINTS: Final = 1_000
"""All pairs are looked at; of more points evenly spaced ones are."""
SIGNIFICANCE: Final = 0.05


@dataclass(frozen=True)
class Trend:
    """Of a series: its direction, its slope by the x, where it stands at x = 0, and the test's p
    (two-sided)."""

    direction: Direction
    slope: float
    intercept: float
    tau: float
    p_value: float

    def at(self, x: float) -> float:
        """What the line says there."""
        return self.intercept + self.slope * x


def trend(points: Sequence[tuple[float, float]]) -> Trend | None:
    """Of (x, y) in rising x; None where there are too few to say."""
    if len(points) < FEWEST_POINTS:
        return None
    points = _thinned(points)
    slopes, balance = [], 0
    for place, (x, y) in enumerate(points):
        for later_x, later_y in points[place + 1 :]:
            if later_x > x:
                slopes.append((later_y - y) / (later_x - x))
                balance += (later_y > y) - (later_y < y)
    if not slopes:
        return None
    slope = median(slopes)
    p_value = _p_value(balance, [y for _, y in points])
    direction: Direction = "steady"
    if p_value < SIGNIFICANCE and slope != 0:
        direction = "rising" if slope > 0 else "falling"
    intercept = median(y - slope * x for x, y in points)
    return Trend(direction, slope, intercept, balance / len(slopes), p_value)


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    if len(points) <= MOST_POINTS:
        return points
    step = len(points) / MOST_POINTS
    return [points[int(number * step)] for number in range(MOST_POINTS)]


def _p_value(balance: int, values: Sequence[float]) -> float:
    n = len(values)
    ties = sum(t * (t - 1) * (2 * t + 5) for t in Counter(values).values())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    if variance <= 0:
        return 1.0
    # Less one: the balance goes in steps, the normal distribution does not.
    z = max(abs(balance) - 1, 0) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))

"""How fast records arrive and are processed, and when the lag is gone. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sparklag_schemas import Batch, Status
from sparklag_schemas.formatting import KEEPS_PACE, NEVER
from sparklag_service.evaluation.query_history import RECENT_S, QueryHistory

_LEAST_S: Final = 1.0
"""The shortest time over which a rate means anything."""
_SAME_PACE: Final = 0.05
"""A query keeps pace where its rate is below that of its input by no more than this share."""
_ENDED: Final[tuple[Status, ...]] = ("STOP", "FINISHED", "FAILED")


@dataclass(frozen=True)
class Rates:
    """Offsets a second, each None where it is not known.

    `input`: what arrived in the last minute, or since the oldest of the recent commits.
    `processed`: what the recent commits moved the query on, by the time since the oldest of them;
    it falls once the next one is overdue, down to 0. `batch`: the same by the time that batches
    ran. `commits`: those commits themselves.
    """

    input: float | None = None
    processed: float | None = None
    batch: float | None = None
    commits: float | None = None

    @property
    def trend(self) -> float | None:
        """What the lag gains."""
        if self.input is None or self.processed is None:
            return None
        return self.input - self.processed

    @property
    def lag_falls(self) -> bool:
        """Whether clearly more is processed than arrives."""
        if self.input is None or self.processed is None:
            return False
        return self.processed > self.input * (1 + _SAME_PACE)

    def at_status(self, status: Status) -> Rates:
        """A query that does not run processes nothing, and how much it could is not known."""
        return Rates(self.input, 0.0, None, 0.0) if status in _ENDED else self


def rates_of(history: QueryHistory) -> Rates:
    """At the time of the last measurement."""
    recent, now_s = history.recent(), history.at_s
    processed = batch = commits = None
    if len(recent) > 1:
        first, last = recent[0], recent[-1]
        moved = last.moved - first.moved
        longest_s = max(newer.at_s - older.at_s for older, newer in pairwise(recent))
        elapsed_s = max(last.at_s - first.at_s, now_s - first.at_s - longest_s)
        if elapsed_s > 0:
            processed, commits = moved / elapsed_s, (len(recent) - 1) / elapsed_s
        if now_s - last.at_s > max(RECENT_S, 3 * longest_s):
            processed = commits = 0.0
        ran_s = 0.0
        for commit in recent[1:]:
            if commit.duration_s is None:
                break
            ran_s += commit.duration_s * commit.batches
        else:
            batch = moved / ran_s if ran_s > 0 else None
    since_s, arrived_before = now_s, 0
    if history.arrivals:
        since_s, arrived_before = history.arrivals[0]
    if len(recent) > 1 and recent[0].at_s < since_s:
        since_s, arrived_before = recent[0].at_s, recent[0].arrived
    long_enough = now_s - since_s >= _LEAST_S
    input_rate = (history.arrived - arrived_before) / (now_s - since_s) if long_enough else None
    return Rates(input_rate, processed, batch, commits)


def catch_up(
    lag: int | None, rates: Rates, batch: Batch | None, status: Status
) -> tuple[float | None, str | None]:
    """Seconds until the lag is gone, and where that is null, why.

    Computed from `rates.batch`, what the query could do: a query that keeps up processes no more
    than arrives. Where its batches are held to a limit, `rates.processed` is all it can do.
    """
    if lag is None:
        return None, "the lag is not known"
    if lag == 0:
        return 0.0, None
    if status == "STALL":
        return None, "the query is stalled"
    if status in (*_ENDED, "GONE"):
        return None, "the query is not running"
    if rates.input is None or rates.processed is None:
        return None, "fewer than two batches observed"
    limited = batch is not None and batch.rate_limited
    capacity = rates.processed if limited or rates.batch is None else rates.batch
    capacity = max(capacity, rates.processed)
    if capacity > rates.input * (1 + _SAME_PACE):
        return round(lag / (capacity - rates.input), 1), None
    both = f"input {rates.input:,.1f} records/s, processed {rates.processed:,.1f} records/s"
    if rates.processed >= rates.input * (1 - _SAME_PACE):
        return None, f"{KEEPS_PACE}: {both}"
    return None, f"{NEVER}: {both}"

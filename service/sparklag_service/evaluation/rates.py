"""How fast records come and are processed, and when the lag is gone. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sparklag_schemas import Batch, Status
from sparklag_schemas.formatting import KEEPS_PACE, NEVER
from sparklag_service.evaluation.query_history import QueryHistory

_LEAST_S: Final = 1.0
"""A rate over less says nothing."""
_PACE: Final = 0.05
"""A query whose rate is so much below that of its input keeps pace."""


@dataclass(frozen=True)
class Rates:
    """Offsets a second, each None where it is not known.

    `input`: what arrived in the last minute, or since the oldest of the recent commits.
    `processed`: what the recent commits moved the query on, by the time since the oldest of them;
    it falls once the next one is overdue. `batch`: the same by the time that batches ran.
    """

    input: float | None = None
    processed: float | None = None
    batch: float | None = None

    @property
    def trend(self) -> float | None:
        """What the lag gains."""
        if self.input is None or self.processed is None:
            return None
        return self.input - self.processed


def rates(course: QueryHistory) -> Rates:
    """At the moment of the course's last measurement."""
    recent, now_s = course.recent(), course.at_s
    processed = batch = None
    if len(recent) > 1:
        first, last = recent[0], recent[-1]
        moved = last.moved - first.moved
        longest_s = max(newer.at_s - older.at_s for older, newer in pairwise(recent))
        elapsed_s = max(last.at_s - first.at_s, now_s - first.at_s - longest_s)
        processed = moved / elapsed_s if elapsed_s > 0 else None
        ran_s = 0.0
        for commit in recent[1:]:
            if commit.duration_s is None:
                break
            ran_s += commit.duration_s * commit.batches
        else:
            batch = moved / ran_s if ran_s > 0 else None
    since_s, came = now_s, 0
    if course.arrivals:
        since_s, came = course.arrivals[0]
    if len(recent) > 1 and recent[0].at_s < since_s:
        since_s, came = recent[0].at_s, recent[0].arrived
    known = now_s - since_s >= _LEAST_S
    input_rate = (course.arrived - came) / (now_s - since_s) if known else None
    return Rates(input_rate, processed, batch)


_ENDED: Final[tuple[Status, ...]] = ("STOP", "FINISHED", "FAILED", "GONE")


def catch_up(
    lag: int | None, found: Rates, batch: Batch | None, status: Status
) -> tuple[float | None, str | None]:
    """Seconds until the lag is gone, and where that is null, why.

    By what the query could do, `found.batch`: one that keeps up processes no more than comes. Where
    its batches are held to a limit, that is all it can do.
    """
    if lag is None:
        return None, "the lag is not known"
    if lag == 0:
        return 0.0, None
    if status == "STALL":
        return None, "the query does not get on"
    if status in _ENDED:
        return None, "the query does not run"
    if found.input is None or found.processed is None:
        return None, "not two batches were seen yet"
    limited = batch is not None and batch.rate_limited
    able = found.processed if limited or found.batch is None else found.batch
    able = max(able, found.processed)
    if able > found.input * (1 + _PACE):
        return round(lag / (able - found.input), 1), None
    both = f"{found.input:,.1f} records come a second, {found.processed:,.1f} are processed"
    if found.processed >= found.input * (1 - _PACE):
        return None, f"{KEEPS_PACE}: {both}"
    return None, f"{NEVER}: {both}"

"""The status of a partition, a topic or a query, and its reason."""

from __future__ import annotations

from typing import Final, NamedTuple

from sparklag_schemas import Status

FLAGS: Final[tuple[Status, ...]] = ("WARN", "STALL")
"""The statuses of a partition that follow from its past alone."""


class Verdict(NamedTuple):
    """A status with its reason in a sentence, and the values of the partition that it is of."""

    status: Status
    reason: str | None
    latest: int | None = None
    lag: int | None = None
    measured_at_ms: int | None = None
    lost: int | None = None

"""What is to say of a partition, of a topic, or of a query."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeGuard

from sparklag_schemas import Status

FLAGS: Final[tuple[Status, ...]] = ("WARN", "STALL")
"""Of a partition, what only its past says."""


def is_flag(status: str) -> TypeGuard[Status]:
    """Whether a status that was read is one of `FLAGS`."""
    return status in FLAGS


class Finding(NamedTuple):
    """A status, why in a sentence, and of a partition what was found."""

    status: Status
    reason: str | None
    latest: int | None = None
    lag: int | None = None
    measured_at_ms: int | None = None
    lost: int | None = None

"""What is to say of a partition, of a topic, or of a query."""

from __future__ import annotations

from typing import Final, NamedTuple

from sparklag_schemas import Status

FLAGS: Final = ("WARN", "STALL")
"""Of a partition, what only its past says."""


class Finding(NamedTuple):
    """A status, why in a sentence, and of a partition what was found."""

    status: Status
    reason: str | None
    latest: int | None = None
    lag: int | None = None
    measured_at_ms: int | None = None
    lost: int | None = None

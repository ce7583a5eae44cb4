"""Work on many groups in turns that do not hold the loop for long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Final

from sparklag_schemas.runtime import tasks

_BREATHE_GROUPS: Final = 500


def with_pauses(groups: Iterable[str]) -> AsyncIterator[str]:
    """The same, letting others go on in between."""
    return tasks.with_pauses(groups, _BREATHE_GROUPS)

"""What was tried for each query's group, and when it is to be tried again. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sparklag_schemas import Offsets
from sparklag_service.mirror.plan import Position

_RENEW_S: Final = 3_600.0
"""Offsets of a group without members expire after a time that the broker's settings say: from an
hour on hardly anybody has less."""
_PATIENCE_INTERVALS: Final = 6
"""What is refused may not be for long; it is asked for again less often than what goes well."""


@dataclass(frozen=True)
class _Attempt:
    offsets: Offsets | None
    """Others are due at once. None: none are."""
    again_s: float
    """`time.monotonic()`, when these are."""
    renew_s: float
    """When everything is, changed or not."""
    reason: str | None = None


class Attempts:
    """By group, and then by query: two may want the same group."""

    def __init__(self, interval_s: float) -> None:
        self._patience_s = _PATIENCE_INTERVALS * interval_s
        self._attempts: dict[str, dict[str, _Attempt]] = {}

    def is_due(self, position: Position, now_s: float) -> bool:
        """Whether to try."""
        last = self._last(position)
        if last is None or now_s >= last.again_s:
            return True
        return last.offsets is not None and last.offsets != position.offsets

    def renews(self, position: Position, now_s: float) -> bool:
        """Whether also what the group says already is to be committed: each partition's offset
        expires by itself."""
        last = self._last(position)
        return last is not None and now_s >= last.renew_s

    def done(self, position: Position, now_s: float, *, renewed: bool = False) -> None:
        """The group says it."""
        renew_s = now_s + _RENEW_S if renewed else self._renew_s(position, now_s)
        self._put(position, _Attempt(position.offsets, renew_s, renew_s))

    def stands_back(self, position: Position, now_s: float, reason: str | None) -> None:
        """The group is not for it; `reason`, where somebody should know why."""
        again_s = now_s + self._patience_s
        self._put(position, _Attempt(None, again_s, self._renew_s(position, now_s), reason))

    def failed(self, position: Position, now_s: float, reason: str, *, soon: bool) -> None:
        """It is tried again: `soon`, or when the query has moved on."""
        again_s = now_s if soon else now_s + self._patience_s
        renew_s = self._renew_s(position, now_s)
        self._put(position, _Attempt(position.offsets, again_s, renew_s, reason))

    def reason(self, group: str) -> str | None:
        """Why not everything is well with a group."""
        attempts = self._attempts.get(group, {}).values()
        return next((one.reason for one in attempts if one.reason is not None), None)

    def keep(self, positions: Iterable[Position]) -> list[str]:
        """Forget all others; the groups of those."""
        kept = {(position.group, position.query_id) for position in positions}
        gone = [
            (group, query_id)
            for group, by_query in self._attempts.items()
            for query_id in by_query
            if (group, query_id) not in kept
        ]
        for group, query_id in gone:
            del self._attempts[group][query_id]
            if not self._attempts[group]:
                del self._attempts[group]
        return [group for group, _ in gone]

    def _last(self, position: Position) -> _Attempt | None:
        return self._attempts.get(position.group, {}).get(position.query_id)

    def _renew_s(self, position: Position, now_s: float) -> float:
        last = self._last(position)
        return last.renew_s if last is not None else now_s + _RENEW_S

    def _put(self, position: Position, attempt: _Attempt) -> None:
        self._attempts.setdefault(position.group, {})[position.query_id] = attempt

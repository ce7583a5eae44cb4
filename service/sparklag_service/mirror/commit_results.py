"""The results of commits, by the error codes of partitions; when the next is due. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from sparklag_kafka.protocol.error_codes import (
    COORDINATOR_LOADING,
    COORDINATOR_NOT_AVAILABLE,
    GROUP_FORBIDDEN,
    NOT_COORDINATOR,
    TOPIC_FORBIDDEN,
    UNKNOWN_GROUP,
    UNKNOWN_TOPIC,
)
from sparklag_schemas import Offsets
from sparklag_schemas.printable import first_few
from sparklag_service.intakes.group_offsets.cluster_failures import group_error_text
from sparklag_service.mirror.group_assignment import MirroredPosition

_NO_RESPONSE: Final = -1
"""The response has no error code of a partition."""
_METADATA_TOO_LARGE: Final = 12
_HAS_MEMBERS: Final = frozenset({22, 23, 25, 27, 82, 110, 111, 113})
"""The generation, member id or epoch is not that of a member: the group has members."""
_MOVED: Final = frozenset({COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR})

_GROUP_REASONS: Final[Mapping[int, str]] = {
    GROUP_FORBIDDEN: "no right to it: the mirror needs Read on the group",
    UNKNOWN_GROUP: "it is no consumer group, so the mirror commits nothing to it",
}
_TOPIC_REASONS: Final[Mapping[int, str]] = {
    UNKNOWN_TOPIC: "Kafka knows no such topic, or not all of its partitions",
    _METADATA_TOO_LARGE: "the metadata of the offset is longer than offset.metadata.max.bytes",
    TOPIC_FORBIDDEN: "no right to it: the mirror needs Read on the topic",
    _NO_RESPONSE: "its coordinator does not report whether it was committed",
}
_RENEW_AFTER_S: Final = 3_600.0
"""Offsets of a group without members expire after the brokers' `offsets.retention.minutes`: hardly
any cluster has less than an hour."""
_BACKOFF_INTERVALS: Final = 6
"""A refusal may last: it is retried less often than offsets are committed."""


class CommitOutcome(NamedTuple):
    """`reason`: what went wrong, if anything did."""

    committed: bool
    """Whether any partition was."""
    reason: str | None = None
    refused: bool = False
    """The group is not for the mirror."""
    moved: bool = False
    """Another broker coordinates it by now."""
    retry_soon: bool = False
    """It is likely to succeed the next time."""


def group_outcome(code: int) -> CommitOutcome:
    """The outcome of an error that is the whole group's."""
    if code in _HAS_MEMBERS:
        reason = "it has members of its own, so the mirror commits nothing to it"
        return CommitOutcome(False, reason, refused=True)
    return CommitOutcome(
        False,
        _GROUP_REASONS.get(code) or group_error_text(code),
        refused=code == UNKNOWN_GROUP,
        moved=code in _MOVED,
        retry_soon=code in _MOVED or code == COORDINATOR_LOADING,
    )


def commit_outcome(offsets: Offsets, codes: Mapping[str, Mapping[int, int]]) -> CommitOutcome:
    """The outcome of a commit of `offsets`, by the error codes of its response."""
    failed: dict[int, list[str]] = {}
    failures = total = 0
    for topic, numbers in offsets.items():
        total += len(numbers)
        for number in numbers:
            code = codes.get(topic, {}).get(number, _NO_RESPONSE)
            if code:
                failures += 1
                failed.setdefault(code, []).append(topic)
    if not failed:
        return CommitOutcome(True)
    if failures == total and len(failed) == 1:
        (code,) = failed
        if code not in _TOPIC_REASONS:
            return group_outcome(code)
    reasons = [
        f"topic {topic}: {_TOPIC_REASONS.get(code) or group_error_text(code)}"
        for code, topics in failed.items()
        for topic in dict.fromkeys(topics)
    ]
    reason = f"{failures} of {total} partitions not committed: {first_few(reasons, '; ')}"
    return CommitOutcome(failures < total, reason)


@dataclass(frozen=True)
class _Attempt:
    offsets: Offsets | None
    """Others are due at once. None: none are."""
    retry_s: float
    """`time.monotonic()`, when these are due."""
    renew_s: float
    """When all are due, changed or not."""
    reason: str | None = None


class CommitSchedule:
    """The last attempt for each group, and then for each query: two may want the same group."""

    def __init__(self, interval_s: float) -> None:
        self._backoff_s = _BACKOFF_INTERVALS * interval_s
        self._attempts: dict[str, dict[str, _Attempt]] = {}

    def is_due(self, position: MirroredPosition, now_s: float) -> bool:
        """Whether to commit the position."""
        last = self._last(position)
        if last is None or now_s >= last.retry_s:
            return True
        return last.offsets is not None and last.offsets != position.offsets

    def is_renewal_due(self, position: MirroredPosition, now_s: float) -> bool:
        """Whether to commit also what the group has already: the offset of each partition expires
        by itself."""
        last = self._last(position)
        return last is not None and now_s >= last.renew_s

    def committed(self, position: MirroredPosition, now_s: float, *, renewed: bool = False) -> None:
        """The group has the position."""
        renew_s = now_s + _RENEW_AFTER_S if renewed else self._renew_s(position, now_s)
        self._put(position, _Attempt(position.offsets, renew_s, renew_s))

    def back_off(self, position: MirroredPosition, now_s: float, reason: str | None) -> None:
        """The group is not for the query. `reason`: None where it is not worth reporting."""
        retry_s = now_s + self._backoff_s
        self._put(position, _Attempt(None, retry_s, self._renew_s(position, now_s), reason))

    def failed(
        self, position: MirroredPosition, now_s: float, reason: str, *, retry_soon: bool
    ) -> None:
        """It is retried: soon, or later unless the query moves on."""
        retry_s = now_s if retry_soon else now_s + self._backoff_s
        renew_s = self._renew_s(position, now_s)
        self._put(position, _Attempt(position.offsets, retry_s, renew_s, reason))

    def reason(self, group: str) -> str | None:
        """Why not everything is committed to a group."""
        attempts = self._attempts.get(group, {}).values()
        return next((a.reason for a in attempts if a.reason is not None), None)

    def retain(self, positions: Iterable[MirroredPosition]) -> list[str]:
        """Forget all other queries; return their groups."""
        retained = {(position.group, position.query_id) for position in positions}
        dropped = [
            (group, query_id)
            for group, by_query in self._attempts.items()
            for query_id in by_query
            if (group, query_id) not in retained
        ]
        for group, query_id in dropped:
            del self._attempts[group][query_id]
            if not self._attempts[group]:
                del self._attempts[group]
        return [group for group, _ in dropped]

    def _last(self, position: MirroredPosition) -> _Attempt | None:
        return self._attempts.get(position.group, {}).get(position.query_id)

    def _renew_s(self, position: MirroredPosition, now_s: float) -> float:
        last = self._last(position)
        return last.renew_s if last is not None else now_s + _RENEW_AFTER_S

    def _put(self, position: MirroredPosition, attempt: _Attempt) -> None:
        self._attempts.setdefault(position.group, {})[position.query_id] = attempt

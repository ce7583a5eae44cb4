"""The results of commits, by the error codes of partitions. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from sparklag_kafka.protocol.error_codes import (
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


class CommitOutcome(NamedTuple):
    """`reason`: what went wrong, if anything did."""

    committed: bool
    """Whether any partition was."""
    reason: str | None = None
    refused: bool = False
    """The group is not for the mirror."""
    moved: bool = False
    """Another broker coordinates it by now."""


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
    )


def commit_outcome(offsets: Offsets, codes: Mapping[str, Mapping[int, int]]) -> CommitOutcome:
    """The outcome of a commit of `offsets`, by the error codes of its response."""
    failed = Counter(
        (topic, code)
        for topic, numbers in offsets.items()
        for number in numbers
        if (code := codes.get(topic, {}).get(number, _NO_RESPONSE))
    )
    if not failed:
        return CommitOutcome(True)
    failures, total = failed.total(), sum(map(len, offsets.values()))
    first, *others = {code for _, code in failed}
    if failures == total and not others and first not in _TOPIC_REASONS:
        return group_outcome(first)
    reasons = [
        f"topic {topic}: {_TOPIC_REASONS.get(code) or group_error_text(code)}"
        for topic, code in failed
    ]
    reason = f"{failures} of {total} partitions not committed: {first_few(reasons, '; ')}"
    return CommitOutcome(failures < total, reason)

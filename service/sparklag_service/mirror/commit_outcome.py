"""What became of a commit, by the error codes of its partitions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from sparklag_kafka.protocol.offset_commit import CommitCodes
from sparklag_schemas import Offsets
from sparklag_schemas.printable import first_few
from sparklag_service.intakes.group_offsets.failures import (
    FORBIDDEN,
    LOADING,
    NO_COORDINATOR,
    NO_SUCH_GROUP,
    NOT_COORDINATOR,
    error_text,
)

_MISSING: Final = -1
"""Stands where the answer says nothing of a partition."""
_MEMBERS: Final = frozenset({22, 23, 25, 27, 82, 110, 111, 113})
"""Generation, member or epoch are not those of a member: it has some, and the mirror is none."""
_MOVED: Final = frozenset({NO_COORDINATOR, NOT_COORDINATOR})

_OF_GROUP: Final[Mapping[int, str]] = {
    FORBIDDEN: "no right to it: the mirror needs Read on the group",
    NO_SUCH_GROUP: "it is no consumer group, so the mirror commits nothing to it",
}
_OF_TOPIC: Final[Mapping[int, str]] = {
    3: "Kafka knows no such topic, or not all of its partitions",
    12: "the mark beside the offset is longer than offset.metadata.max.bytes",
    29: "no right to it: the mirror needs Read on the topic",
    _MISSING: "its coordinator says nothing of it",
}


class Outcome(NamedTuple):
    """`reason`: what went wrong, if anything did."""

    committed: bool
    """Whether any partition was."""
    reason: str | None = None
    refused: bool = False
    """The group is not for the mirror."""
    moved: bool = False
    """Somebody else coordinates it by now."""
    soon: bool = False
    """It may well succeed the next time."""


def group_outcome(code: int) -> Outcome:
    """Of an error that is the whole group's."""
    if code in _MEMBERS:
        return Outcome(
            False, "it has members of its own, so the mirror commits nothing to it", refused=True
        )
    return Outcome(
        False,
        _OF_GROUP.get(code) or error_text(code),
        refused=code == NO_SUCH_GROUP,
        moved=code in _MOVED,
        soon=code in _MOVED or code == LOADING,
    )


def commit_outcome(asked: Offsets, codes: CommitCodes) -> Outcome:
    """What the coordinator answered to a commit of `asked`."""
    failed: dict[int, list[str]] = {}
    count = total = 0
    for topic, numbers in asked.items():
        answered = codes.get(topic, {})
        total += len(numbers)
        for number in numbers:
            code = answered.get(number, _MISSING)
            if code:
                count += 1
                failed.setdefault(code, []).append(topic)
    if not failed:
        return Outcome(True)
    if count == total and len(failed) == 1:
        (code,) = failed
        if code not in _OF_TOPIC:
            return group_outcome(code)
    said = [
        f"topic {topic}: {_OF_TOPIC.get(code) or error_text(code)}"
        for code, topics in failed.items()
        for topic in dict.fromkeys(topics)
    ]
    reason = f"{count} of {total} partitions not committed: {first_few(said, '; ')}"
    return Outcome(count < total, reason)

"""What may be committed to a group, by what is committed there. Pure.

Kafka has no conditional commit. So each commit is decided by the metadata of the offsets that the
group's coordinator has just returned, alone: what an instance remembers may be out of date.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from sparklag_kafka.protocol.offset_fetch import CommittedTopic
from sparklag_schemas import Offsets
from sparklag_service.intakes.group_offsets.commit_metadata import CommitMetadata, parse_metadata
from sparklag_service.mirror.group_assignment import GroupOwnership, MirroredPosition

_RENEW_AFTER_MS: Final = 3_600_000
"""Offsets of a group without members expire after the brokers' `offsets.retention.minutes`: hardly
any cluster has less than an hour."""


class CommitDecision(NamedTuple):
    """`offsets` are to be committed: none where the group has them, or is not this query's."""

    offsets: Offsets
    refused: str | None = None
    """Why nothing may be committed, unless it is not worth reporting."""
    superseded: bool = False
    """The group has a newer position of the query, or one of its successor."""


def decide_commit(
    position: MirroredPosition,
    committed: Mapping[str, CommittedTopic],
    ownership: GroupOwnership,
) -> CommitDecision:
    """What of `position` is to be committed to a group that has committed that."""
    metadata: dict[tuple[str, int], CommitMetadata] = {}
    for name, topic in committed.items():
        for number in topic.offsets:
            parsed = parse_metadata(topic.metadata.get(number, ""))
            if parsed is None:
                return CommitDecision({}, _foreign(name, number))
            metadata[name, number] = parsed
    own = [parsed for parsed in metadata.values() if parsed.query_id == position.query_id]
    if own and max(own).observed_at_ms > position.observed_at_ms:
        return CommitDecision({}, superseded=True)
    # Several queries may have committed: a successor need not read every partition.
    owner = max(metadata.values()).query_id if metadata else None
    if owner != position.query_id:
        others = ownership.live(ownership.rivals(position), position) if owner is None else [owner]
        if others and (position.ended or ownership.has_ended(position.query_id)):
            # A deleted checkpoint leaves a query of the same name behind: it never takes over.
            return CommitDecision({}, superseded=True)
        if ownership.live(others, position):
            return CommitDecision({}, _shared(position, owner, others, ownership))
    return CommitDecision(_due(position, committed, metadata))


def _due(
    position: MirroredPosition,
    committed: Mapping[str, CommittedTopic],
    metadata: Mapping[tuple[str, int], CommitMetadata],
) -> Offsets:
    due: Offsets = {}
    for topic, offsets in position.offsets.items():
        for number, offset in offsets.items():
            parsed = metadata.get((topic, number))
            if parsed is not None and parsed.query_id == position.query_id:
                is_equal = committed[topic].offsets[number] == offset
                age_ms = position.observed_at_ms - parsed.observed_at_ms
                # Without age it was committed from this very observation.
                if age_ms < (_RENEW_AFTER_MS if is_equal else 1):
                    continue
            due.setdefault(topic, {})[number] = offset
    return due


def _foreign(topic: str, number: int) -> str:
    return (
        f"topic {topic}, partition {number} was not committed by the mirror: the group is somebody"
        " else's, so nothing is committed to it; delete it, or choose another mirror.group"
    )


def _shared(
    position: MirroredPosition, owner: str | None, others: list[str], ownership: GroupOwnership
) -> str:
    consequence = "nothing is committed to it" if owner is None else f"it stays that of {owner}"
    queries = ownership.describe({position.query_id, *others})
    return (
        f"queries {queries} would share it: {consequence}; give them names of their own, or put"
        " {query_id} into mirror.group"
    )

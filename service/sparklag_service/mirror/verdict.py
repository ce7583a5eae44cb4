"""What may be committed to a group, by what is committed there. Pure.

Kafka has no commit that depends on what is there. So every commit is decided by what the group's
coordinator has just said, by the marks alone: what an instance remembers may be out of date.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sparklag_kafka.protocol.offset_fetch import TopicAnswer
from sparklag_schemas import Offsets
from sparklag_service.mirror.claims import Claims
from sparklag_service.mirror.mark import Mark, read_mark
from sparklag_service.mirror.plan import Position


class Verdict(NamedTuple):
    """`offsets` are to be committed: none where the group says them, or is not this query's."""

    offsets: Offsets
    refused: str | None = None
    """Why nothing may be committed, where somebody should know."""
    superseded: bool = False
    """The group says a newer position of the query, or it is that of the query's successor."""


def judge(
    position: Position, found: Mapping[str, TopicAnswer], claims: Claims, *, renew: bool
) -> Verdict:
    """`renew`: also what the group says already, before it expires."""
    marks: dict[str, dict[int, Mark]] = {}
    for topic, answer in found.items():
        of_topic = marks.setdefault(topic, {})
        for number in answer.offsets:
            mark = read_mark(answer.metadata.get(number, ""))
            if mark is None:
                return Verdict({}, _of_somebody_else(topic, number))
            of_topic[number] = mark
    every = [mark for of_topic in marks.values() for mark in of_topic.values()]
    own = [mark for mark in every if mark.query_id == position.query_id]
    if own and max(own).observed_at_ms > position.observed_at_ms:
        return Verdict({}, superseded=True)
    # Not all need be of one query: partitions that a successor has not read stay the old one's.
    owner = max(every).query_id if every else None
    if owner != position.query_id:
        others = claims.live(claims.rivals(position), position) if owner is None else [owner]
        if others and (position.ended or claims.is_over(position.query_id)):
            # A deleted checkpoint leaves a query of the same name behind: it never takes over.
            return Verdict({}, superseded=True)
        if claims.live(others, position):
            return Verdict({}, _shared(position, owner, others, claims))
    return Verdict(_to_commit(position, found, marks, renew=renew))


def _to_commit(
    position: Position,
    found: Mapping[str, TopicAnswer],
    marks: Mapping[str, Mapping[int, Mark]],
    *,
    renew: bool,
) -> Offsets:
    commit: Offsets = {}
    for topic, numbers in position.offsets.items():
        marked = marks.get(topic, {})
        said = found[topic].offsets if topic in found else {}
        due = {}
        for number, offset in numbers.items():
            mark = marked.get(number)
            foreign = mark is None or mark.query_id != position.query_id
            # What is of this very moment is not said twice.
            older = mark is not None and mark.observed_at_ms < position.observed_at_ms
            if foreign or (renew if said[number] == offset else older):
                due[number] = offset
        if due:
            commit[topic] = due
    return commit


def _of_somebody_else(topic: str, number: int) -> str:
    return (
        f"topic {topic}, partition {number} was not committed by the mirror: the group is somebody"
        " else's, so nothing is committed to it; delete it, or choose another mirror.group"
    )


def _shared(position: Position, owner: str | None, others: list[str], claims: Claims) -> str:
    whose = "nothing is committed to it" if owner is None else f"it stays that of {owner}"
    return (
        f"queries {claims.called({position.query_id, *others})} would share it: {whose}; give them"
        " names of their own, or put {query_id} into mirror.group"
    )

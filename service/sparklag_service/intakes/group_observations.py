"""Observations of a cluster's ordinary consumer groups, from their committed offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from sparklag_kafka.protocol.groups import DEAD, CommittedGroup
from sparklag_schemas import Cause, Observation, Offsets, SourcePosition
from sparklag_schemas.messages.observation import ConsumerGroup
from sparklag_service.intakes import Delivery, SourceContext, nothing_to_do
from sparklag_service.intakes.group_commits import is_mirrored


def group_query_id(alias: str, group: str) -> str:
    return f"group:{alias}:{group}"


_DELETED: Final = ConsumerGroup(state=DEAD, members=0, members_without_partitions=0)


@dataclass(eq=False)
class _ObservedGroup:
    """The last offsets and members read, and when they were last put on the queue."""

    committed: CommittedGroup
    described: ConsumerGroup
    requested_at_ms: int
    offsets: Offsets = field(default_factory=dict)
    assigned: dict[str, list[int]] = field(default_factory=dict)
    put_s: float | None = None
    """`time.monotonic()`. None: never."""
    processed_at_ms: int | None = None


class GroupObservations:
    """Puts an observation on the queue for each group that this instance watches: when its
    committed offsets, state or members changed, and `heartbeat_s` after the last observation.

    A group that cannot be read is not observed, so its last observation ages. Tracked groups that
    do not exist are reported as terminated, even if this instance never read them.
    """

    def __init__(self, alias: str, context: SourceContext) -> None:
        self._alias = alias
        self._context = context
        self._groups: dict[str, _ObservedGroup] = {}
        self._terminated: set[str] = set()
        self._mirrored: dict[str, CommittedGroup] = {}

    def wants(self, group: str) -> bool:
        """Return whether to read the group. Forgets a group that another instance watches now."""
        wanted = self._context.watches(group_query_id(self._alias, group))
        if not wanted:
            self._groups.pop(group, None)
            self._mirrored.pop(group, None)
        return wanted

    def remembered(self) -> Iterable[str]:
        """Tracked groups, which are looked up even if no broker lists them."""
        prefix = group_query_id(self._alias, "")
        groups = {
            query_id.removeprefix(prefix)
            for query_id, query in self._context.queries.items()
            if query_id.startswith(prefix) and not query.ended and self._context.watches(query_id)
        }
        # Each group is reported as terminated once.
        self._terminated &= groups
        return groups - self._terminated

    def on_offsets(
        self, group: str, committed: CommittedGroup, described: ConsumerGroup, requested_at_ms: int
    ) -> None:
        """Observe the offsets that an existing group had committed at `requested_at_ms` or later.
        `committed` has no group error, and is the same object as before if nothing changed.
        `described` may be older."""
        observed = self._groups.get(group)
        if observed is not None and committed is observed.committed:
            offsets = observed.offsets
        elif self._is_mirror(group, committed, requested_at_ms):
            return
        else:
            offsets = _offsets(committed, observed.offsets if observed is not None else {})
            self._terminated.discard(group)
        if is_first := observed is None:
            observed = self._groups[group] = _ObservedGroup(committed, described, requested_at_ms)
        observed.committed, observed.requested_at_ms = committed, requested_at_ms
        is_changed = described != observed.described
        observed.described = described
        # A group without any commit is no query, unless its kind commits nothing.
        if offsets != observed.offsets:
            if not is_first:
                observed.processed_at_ms = requested_at_ms
            observed.offsets = offsets
            observed.assigned = {topic: sorted(numbers) for topic, numbers in offsets.items()}
            self._put_position(group, observed, "group")
        elif observed.put_s is None and not described.has_position:
            self._put_position(group, observed, "group")
        elif observed.put_s is not None and (
            is_changed or time.monotonic() - observed.put_s >= self._context.settings.heartbeat_s
        ):
            self._put_position(group, observed, "refresh")

    def on_deleted(self, group: str, requested_at_ms: int) -> None:
        """Report a group as terminated: it was deleted, or all its offsets expired."""
        observed = self._groups.pop(group, None)
        self._mirrored.pop(group, None)
        self._terminated.add(group)
        if observed is not None and observed.put_s is not None:
            observed.requested_at_ms, observed.described = requested_at_ms, _DELETED
            self._put_position(group, observed, "terminated")
        else:
            tracked = self._context.queries.get(group_query_id(self._alias, group))
            if tracked is not None and not tracked.ended:
                deleted = _ObservedGroup(CommittedGroup(0, {}), _DELETED, requested_at_ms)
                self._put(group, deleted, "terminated")

    def _is_mirror(self, group: str, committed: CommittedGroup, requested_at_ms: int) -> bool:
        # A mirrored Spark query is measured already; its group must not become another query.
        # Commit metadata identifies mirrored groups, whichever service committed.
        if committed is self._mirrored.get(group):
            return True
        mirrored = is_mirrored(committed.topics)
        if mirrored and group not in self._mirrored:
            # The group may have been an ordinary one before.
            self.on_deleted(group, requested_at_ms)
        if mirrored:
            self._mirrored[group] = committed
        else:
            self._mirrored.pop(group, None)
        return mirrored

    def _put_position(self, group: str, observed: _ObservedGroup, cause: Cause) -> None:
        observed.put_s = time.monotonic()
        position = SourcePosition(source=0, processed=observed.offsets, assigned=observed.assigned)
        self._put(group, observed, cause, position)

    def _put(
        self, group: str, observed: _ObservedGroup, cause: Cause, *positions: SourcePosition
    ) -> None:
        observation = Observation(
            observation_id=str(uuid4()),
            query_id=group_query_id(self._alias, group),
            run_id=None,
            query=group,
            cluster=self._alias,
            origin="group",
            cause=cause,
            observed_at=observed.requested_at_ms,
            processed_at=observed.processed_at_ms,
            group=observed.described,
            sources=list(positions),
        )
        self._context.queue.put_nowait(Delivery(observation, nothing_to_do))


def _offsets(committed: CommittedGroup, previous: Offsets) -> Offsets:
    """The committed offsets. Where an offset is unknown now, the previous one."""
    offsets = {}
    for name, topic in committed.topics.items():
        kept = {
            number: previous[name][number]
            for number in topic.error_codes
            if number in previous.get(name, {})
        }
        if kept or topic.offsets:
            offsets[name] = kept | topic.offsets if kept else topic.offsets
    return offsets

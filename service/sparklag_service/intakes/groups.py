"""The group intake: committed offsets of ordinary consumer groups, of one cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from sparklag_kafka.protocol.offset_fetch import Committed, GroupAnswer
from sparklag_schemas import (
    Cause,
    ClusterAccess,
    GroupSettings,
    Observation,
    SourcePosition,
)
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.runtime.tasks import run_together
from sparklag_service.intakes import Delivery, nothing_to_do
from sparklag_service.intakes.group_offsets.group_reader import GroupReader
from sparklag_service.intakes.group_offsets.pauses import with_pauses
from sparklag_service.mirror.mark import is_mirrored

_LOOKS: Final = 4
"""How often in a heartbeat it is looked whose turn it is."""
_CANCEL_AGAIN_S: Final = 3.0


def group_query_id(alias: str, group: str) -> str:
    """The query id under which a consumer group is known."""
    return f"group:{alias}:{group}"


@dataclass(eq=False)
class _Group:
    """What was read of a group, and said."""

    answer: GroupAnswer
    offsets: dict[str, Committed]
    asked_at_ms: int
    read_s: float
    """`time.monotonic()`, as `put_s`: when it was last said. None: never."""
    put_s: float | None = None
    processed_at_ms: int | None = None
    assigned: dict[str, list[int]] = field(default_factory=dict)


class GroupIntake:
    """Puts an observation for each group it answers for (`owns` of its query id): when what it has
    committed changed, and every `heartbeat_s`.

    A group that cannot be read is not observed: its last observation grows old, and `failing` says
    why. `remembered` are query ids that are measured: of groups that are gone it is said so, also
    when this instance has never seen them. Create it on its loop. Raises SettingsError.
    """

    def __init__(
        self,
        alias: str,
        access: ClusterAccess,
        groups: GroupSettings,
        heartbeat_s: float,
        queue: NewestQueue[Delivery],
        owns: Callable[[str], bool],
        *,
        remembered: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self.name = f"groups of {alias}"
        self._alias = alias
        self._settings = groups
        self._heartbeat_s = heartbeat_s
        self._queue = queue
        self._owns = owns
        self._remembered = remembered
        self._groups: dict[str, _Group] = {}
        self._ended: set[str] = set()
        self._mirrored: dict[str, GroupAnswer] = {}
        self._fresh_s = groups.interval_s + access.kafka.request_timeout_s
        self._reader = GroupReader(alias, access, groups, self)

    @property
    def failing(self) -> Mapping[str, str]:
        """What cannot be read, and why: one line each, naming the cluster."""
        return self._reader.failing

    async def run(self) -> None:
        """Read and observe until cancelled."""
        if not self._settings.allow:
            await asyncio.Event().wait()
        await run_together(
            self._reader.run(), self._refresh_regularly(), patience_s=_CANCEL_AGAIN_S
        )

    def wants(self, group: str) -> bool:
        """See GroupTaker. What another instance answers for now is forgotten here."""
        wanted = self._owns(group_query_id(self._alias, group))
        if not wanted:
            self._groups.pop(group, None)
            self._mirrored.pop(group, None)
        return wanted

    def remembered(self) -> Iterable[str]:
        """See GroupTaker."""
        prefix = group_query_id(self._alias, "")
        groups = {
            query_id.removeprefix(prefix)
            for query_id in self._remembered()
            if query_id.startswith(prefix) and self._owns(query_id)
        }
        # Once is enough.
        self._ended &= groups
        return groups - self._ended

    def read(self, answer: GroupAnswer, asked_at_ms: int) -> None:
        """See GroupTaker."""
        now_s = time.monotonic()
        known = self._groups.get(answer.group)
        if known is not None and answer is known.answer:
            known.asked_at_ms, known.read_s = asked_at_ms, now_s
            return
        if self._is_mirror(answer, asked_at_ms):
            return
        self._ended.discard(answer.group)
        offsets = _offsets(answer, known.offsets if known is not None else {})
        if known is None:
            known = self._groups[answer.group] = _Group(answer, {}, asked_at_ms, now_s)
        elif offsets != known.offsets:
            known.processed_at_ms = asked_at_ms
        known.answer, known.asked_at_ms, known.read_s = answer, asked_at_ms, now_s
        # A group that has never committed anything is no query.
        if offsets != known.offsets:
            known.offsets = offsets
            known.assigned = {topic: sorted(numbers) for topic, numbers in offsets.items()}
            self._put(answer.group, known, "group")

    def gone(self, group: str, asked_at_ms: int) -> None:
        """See GroupTaker."""
        known = self._groups.pop(group, None)
        self._mirrored.pop(group, None)
        self._ended.add(group)
        if known is not None and known.put_s is not None:
            known.asked_at_ms = asked_at_ms
            self._put(group, known, "terminated")
        elif group_query_id(self._alias, group) in self._remembered():
            self._queue.put_nowait(self._delivery(group, "terminated", asked_at_ms, None, []))

    def _is_mirror(self, answer: GroupAnswer, asked_at_ms: int) -> bool:
        """Whether a group is the mirror of a Spark query: that is measured as what it is, and must
        not come back as a query of its own. The mark tells, whichever service has left it."""
        group = answer.group
        if answer is self._mirrored.get(group):
            return True
        mirrored = is_mirrored(answer.topics)
        if mirrored and group not in self._mirrored:
            # It may have been an ordinary one.
            self.gone(group, asked_at_ms)
        if mirrored:
            self._mirrored[group] = answer
        else:
            self._mirrored.pop(group, None)
        return mirrored

    async def _refresh_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_s / _LOOKS)
            now_s = time.monotonic()
            # Said again before it is too late, not after.
            due_s = now_s - self._heartbeat_s * (1 - 1 / _LOOKS)
            async for group in with_pauses(list(self._groups)):
                known = self._groups.get(group)
                if known is None or known.put_s is None or known.put_s > due_s:
                    continue
                if known.read_s >= now_s - self._fresh_s and self.wants(group):
                    self._put(group, known, "refresh")

    def _put(self, group: str, known: _Group, cause: Cause) -> None:
        known.put_s = time.monotonic()
        position = SourcePosition(source=0, processed=known.offsets, assigned=known.assigned)
        self._queue.put_nowait(
            self._delivery(group, cause, known.asked_at_ms, known.processed_at_ms, [position])
        )

    def _delivery(
        self,
        group: str,
        cause: Cause,
        observed_at_ms: int,
        processed_at_ms: int | None,
        sources: list[SourcePosition],
    ) -> Delivery:
        observation = Observation(
            observation_id=str(uuid4()),
            query_id=group_query_id(self._alias, group),
            run_id=None,
            query=group,
            cluster=self._alias,
            origin="group",
            cause=cause,
            observed_at=observed_at_ms,
            processed_at=processed_at_ms,
            sources=sources,
        )
        return Delivery(observation, nothing_to_do)


def _offsets(answer: GroupAnswer, before: Mapping[str, Committed]) -> dict[str, Committed]:
    """What is committed. An offset that is not known now stays what it was."""
    offsets = {}
    for topic, found in answer.topics.items():
        known = found.offsets
        if found.failed:
            olds = before.get(topic, {})
            known = {**{n: olds[n] for n in found.failed if n in olds}, **known}
        if known:
            offsets[topic] = known
    return offsets

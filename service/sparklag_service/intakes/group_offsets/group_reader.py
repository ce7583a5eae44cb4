"""Reads the committed offsets of a cluster's consumer groups, from the coordinators of the groups.

Each coordinator is read by itself, at once for all of its groups. What it says of their members is
read less often.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from sparklag_kafka.brokers.connection import BrokerConnection
from sparklag_kafka.brokers.group_offsets import (
    GROUPS_PER_REQUEST,
    CoordinatorTasks,
    describe_groups,
    fetch_offsets,
)
from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.errors import KAFKA_FAILURES, broker_error_text
from sparklag_kafka.protocol.describe_groups import DEAD, GroupDescription
from sparklag_kafka.protocol.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    NONE,
    NOT_COORDINATOR,
    UNKNOWN_GROUP,
)
from sparklag_kafka.protocol.offset_fetch import CommittedGroup, OffsetFetchResponse
from sparklag_schemas import ClusterAccess, GroupSettings
from sparklag_schemas.query_message import ConsumerGroup
from sparklag_schemas.runtime.chunks import by_count
from sparklag_schemas.runtime.tasks import repeat, run_together, until_set, with_pauses
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.intakes.group_offsets.cluster_failures import (
    ClusterFailures,
    group_error_text,
)
from sparklag_service.intakes.group_offsets.group_listing import GROUPS_PER_PAUSE, GroupFinder

_MIN_FIND_INTERVAL_S: Final = 1.0
"""However often a group is not where it was."""
_FIND_BACKOFF_S: Final = (1.0, 2.0, 5.0, 10.0)
"""Delays while the listing is incomplete; the last one repeats."""
_NOT_DESCRIBED: Final = ConsumerGroup()


class GroupObserver(Protocol):
    """Who wants the committed offsets."""

    def wants(self, group: str) -> bool:
        """Whether the group is to be read. Called before and after each request."""

    def remembered(self) -> Iterable[str]:
        """Groups that existed earlier: they are looked up even if no broker lists them."""

    def on_offsets(
        self, group: str, committed: CommittedGroup, described: ConsumerGroup, requested_at_ms: int
    ) -> None:
        """What an existing group had committed, or more, at that time; without a group error. The
        same object as the last time where nothing has changed. `described` may be older."""

    def on_deleted(self, group: str, requested_at_ms: int) -> None:
        """It was deleted, or all that it had committed has expired."""


class GroupReader:
    """Calls `observer` while `run` runs. Create it on its loop. Raises SettingsError."""

    def __init__(
        self,
        alias: str,
        access: ClusterAccess,
        settings: GroupSettings,
        observer: GroupObserver,
    ) -> None:
        self._settings = settings
        self._observer = observer
        self._brokers = BrokerPool(access)
        self._failures = ClusterFailures(alias)
        self._find_now = asyncio.Event()
        self._read_now = asyncio.Event()
        self._finder = GroupFinder(
            settings, self._brokers, self._failures, observer.remembered, self._read_now.set
        )
        self._listing = self._finder.listing
        self._read: set[str] = set()
        """Groups that the observer was given."""
        self._decoded: dict[int, dict[OffsetFetchResponse, Mapping[str, CommittedGroup]]] = {}
        """The last responses of each coordinator."""
        self._described: dict[str, ConsumerGroup] = {}
        self._describe_due_s: dict[int, float] = {}
        """By coordinator: when to describe all of its groups again."""
        self._reads = CoordinatorTasks("reading groups of")
        self._incomplete_finds = 0
        self.poll_s: dict[int, float] = {}
        """By coordinator: what it took to read its groups last."""

    @property
    def failing(self) -> Mapping[str, str]:
        """What cannot be read, and why, in one line each."""
        return self._failures.reasons

    async def run(self) -> None:
        """Read until cancelled."""
        try:
            await run_together(
                repeat(self._find_regularly, self._failures.cluster, _MIN_FIND_INTERVAL_S),
                repeat(self._read_regularly, self._failures.cluster, _MIN_FIND_INTERVAL_S),
            )
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Cancel what is in flight and close the connections; bounded in time."""
        await self._reads.aclose()
        await self._brokers.aclose()

    async def find_groups(self) -> bool:
        """List the groups once; whether any broker responded."""
        if await self._finder.find():
            self._failures.recover(self._failures.cluster)
            return True
        reason = await self._brokers.explain_unreachable()
        self._failures.add(self._failures.cluster, f"consumer groups cannot be read, {reason}")
        return False

    async def read_all(self) -> None:
        """Read every listed group once."""
        await self._start_reads()
        await self._reads.wait()

    async def _find_regularly(self) -> None:
        self._find_now.clear()
        interval_s = self._settings.find_interval_s
        # A coordinator that is loading lists no groups, nor does one that hangs.
        if await self.find_groups() and self._listing.is_complete:
            self._incomplete_finds = 0
            await asyncio.sleep(min(_MIN_FIND_INTERVAL_S, interval_s))
            await until_set(self._find_now, interval_s - _MIN_FIND_INTERVAL_S)
        else:
            backoff_s = _FIND_BACKOFF_S[min(self._incomplete_finds, len(_FIND_BACKOFF_S) - 1)]
            self._incomplete_finds += 1
            await asyncio.sleep(min(backoff_s, interval_s))

    async def _read_regularly(self) -> None:
        due_s = time.monotonic() + self._settings.interval_s
        self._read_now.clear()
        await self._start_reads()
        await until_set(self._read_now, due_s - time.monotonic())

    async def _start_reads(self) -> None:
        by_coordinator: dict[int, list[str]] = {}
        async for group in with_pauses(list(self._listing.groups), GROUPS_PER_PAUSE):
            listed = self._listing.groups.get(group)
            if listed is None:
                continue
            if not self._observer.wants(group):
                self._forget(group, deleted=self._listing.is_unlisted(group))
            elif listed.coordinator is not None:
                by_coordinator.setdefault(listed.coordinator, []).append(group)
        for left in self.poll_s.keys() - by_coordinator.keys():
            del self.poll_s[left]
        for node_id, groups in by_coordinator.items():
            self._reads.start(node_id, partial(self._read_from, node_id, groups))

    async def _read_from(self, node_id: int, groups: Sequence[str]) -> None:
        connection = self._brokers.connection(node_id)
        if connection is None:
            reason = f"its coordinator, broker {node_id}, has left the cluster"
            self._failures.add_groups(dict.fromkeys(groups, reason))
            self._find_now.set()
            return
        began_s = time.monotonic()
        key = self._failures.broker(node_id)
        previous, self._decoded[node_id] = self._decoded.get(node_id, {}), {}
        if began_s >= self._describe_due_s.get(node_id, 0.0):
            self._describe_due_s[node_id] = began_s + self._settings.find_interval_s
            for group in groups:
                self._described.pop(group, None)
        try:
            for chunk in by_count(groups, GROUPS_PER_REQUEST):
                await connection.connect()
                requested_at_ms = epoch_ms()
                responses = await fetch_offsets(connection, chunk, previous)
                self._decoded[node_id] |= responses
                await self._describe(node_id, connection, chunk)
                for committed in responses.values():
                    await self._take_all(committed, requested_at_ms)
        except KAFKA_FAILURES as error:
            if self._brokers.connection(node_id) is connection:  # else it has left meanwhile
                reason = broker_error_text(node_id, error, self._brokers.timeout_s)
                self._failures.add(key, f"{reason}; consumer groups not read: {len(groups)}")
            self._find_now.set()
        else:
            self._failures.recover(key)
            self.poll_s[node_id] = time.monotonic() - began_s

    async def _describe(
        self, node_id: int, connection: BrokerConnection, groups: Sequence[str]
    ) -> None:
        """Describe those that this coordinator has not described since they are due."""
        undescribed = [
            group
            for group in groups
            if self._described.get(group, _NOT_DESCRIBED).coordinator != node_id
        ]
        if not undescribed:
            return
        key = self._failures.descriptions(node_id)
        try:
            descriptions = await describe_groups(connection, undescribed)
        except KAFKA_FAILURES as error:
            reason = broker_error_text(node_id, error, self._brokers.timeout_s)
            self._failures.add(key, f"members of consumer groups are not known: {reason}")
            descriptions = {}
        else:
            self._failures.recover(key)
        for group in undescribed:
            self._described[group] = _consumer_group(descriptions.get(group), node_id)

    async def _take_all(self, groups: Mapping[str, CommittedGroup], requested_at_ms: int) -> None:
        failed: dict[str, str] = {}
        async for group, committed in with_pauses(groups.items(), GROUPS_PER_PAUSE):
            reason = self._take(group, committed, requested_at_ms)
            if reason is not None:
                failed[group] = reason
        self._failures.add_groups(failed)

    def _take(self, group: str, committed: CommittedGroup, requested_at_ms: int) -> str | None:
        """Give it to the observer; return why some of its offsets are unknown."""
        if group not in self._listing.groups or not self._observer.wants(group):
            return None
        if committed.error_code not in (NONE, UNKNOWN_GROUP):
            if committed.error_code in (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR):
                self._listing.set_coordinator(group, None)
                self._find_now.set()
            return group_error_text(committed.error_code)
        errors = [
            code for topic in committed.topics.values() for code in topic.error_codes.values()
        ]
        if not errors:
            self._failures.recover(self._failures.group(group))
        if committed.topics:
            self._listing.has_offsets(group)
        elif not self._exists(group, requested_at_ms):
            return None
        self._read.add(group)
        described = self._described.get(group, _NOT_DESCRIBED)
        self._observer.on_offsets(group, committed, described, requested_at_ms)
        if errors:
            return f"{len(errors)} of its offsets are unknown: {group_error_text(errors[0])}"
        return None

    def _exists(self, group: str, requested_at_ms: int) -> bool:
        """Whether a group without offsets exists, as far as is known."""
        exists = self._listing.exists_without_offsets(group)
        if exists is None and group in self._read:
            self._find_now.set()
        elif exists is False:
            self._forget(group, deleted=True)
            self._observer.on_deleted(group, requested_at_ms)
        return exists is True

    def _forget(self, group: str, *, deleted: bool) -> None:
        self._read.discard(group)
        self._described.pop(group, None)
        self._failures.discard(self._failures.group(group))
        if deleted:
            self._listing.discard(group)


def _consumer_group(description: GroupDescription | None, coordinator: int) -> ConsumerGroup:
    # A group of which offsets are read is not dead: it is of a kind that is not described here.
    if description is None or description.error_code or description.state == DEAD:
        return ConsumerGroup(coordinator=coordinator)
    return ConsumerGroup(
        state=description.state,
        members=description.members,
        members_without_partitions=description.members_without_partitions,
        coordinator=coordinator,
    )

"""The group intake: reads a cluster's consumer groups from their coordinators.

Each coordinator is read independently: the log ends of its partitions of `__consumer_offsets`, then
the groups of partitions that grew; all groups at longer intervals, members less often.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from sparklag_kafka.brokers.group_offsets import (
    GROUPS_PER_REQUEST,
    CoordinatorTasks,
    describe_groups,
    fetch_offsets,
)
from sparklag_kafka.brokers.pool import BrokerConnection, BrokerPool
from sparklag_kafka.errors import (
    COORDINATOR_NOT_AVAILABLE,
    KAFKA_FAILURES,
    NONE,
    NOT_COORDINATOR,
    UNKNOWN_GROUP,
    broker_error_text,
)
from sparklag_kafka.protocol.groups import (
    DEAD,
    STABLE,
    CommittedGroup,
    GroupDescription,
    OffsetFetchResponse,
)
from sparklag_kafka.protocol.list_offsets import LATEST, OffsetsRequest, TopicPart, read_offsets
from sparklag_schemas import ClusterSettings
from sparklag_schemas.messages.observation import ConsumerGroup
from sparklag_schemas.runtime.queue import by_count
from sparklag_schemas.runtime.tasks import repeat, run_together, until_set, with_pauses
from sparklag_schemas.settings.clusters import NamePatterns
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.intakes.group_commits import ClusterFailures, group_error_text
from sparklag_service.intakes.group_listing import (
    COMMITS_TOPIC,
    GROUPS_PER_PAUSE,
    LOG_ENDS_INTERVAL_S,
    USUAL_PARTITIONS,
    CommitPartition,
    GroupFinder,
    ListedGroup,
    Responses,
    commit_partition,
)
from sparklag_service.intakes.group_observations import GroupObservations

_MIN_FIND_INTERVAL_S: Final = 1.0
"""The minimum time between two listings, however often groups move."""
_FIND_BACKOFF_S: Final = (1.0, 2.0, 5.0, 10.0)
"""Delays while the listing is incomplete; the last one repeats."""
_NOT_DESCRIBED: Final = ConsumerGroup()
Partitions = set[tuple[str, int]]


class GroupIntake:
    """Reads groups into `observations`. Create it on the loop it runs on. Raises SettingsError."""

    def __init__(
        self, alias: str, cluster: ClusterSettings, observations: GroupObservations
    ) -> None:
        self.name = f"groups of {alias}"
        self._settings = cluster.groups
        self._observations = observations
        self._brokers = BrokerPool(cluster.access)
        self._failures = ClusterFailures(alias)
        self.failing: Mapping[str, str] = self._failures.reasons
        """Why groups cannot be read, by what fails: one line each, with the cluster."""
        self._find_now = asyncio.Event()
        self._read_now = asyncio.Event()
        self._finder = GroupFinder(
            NamePatterns(cluster.groups.allow, cluster.groups.deny),
            self._brokers,
            self._failures,
            observations.remembered,
            self._read_now.set,
        )
        self._listing = self._finder.listing
        self._read: set[str] = set()
        """Groups that have been observed."""
        self._by_coordinator: dict[int, dict[int, CommitPartition]] = {}
        """By node id, then partition number."""
        self._grouped_s = -math.inf
        self._described: dict[str, ConsumerGroup] = {}
        self._assigned: dict[str, Mapping[str, set[int]]] = {}
        """The assignments of new descriptions, until the group's offsets are taken."""
        self._unassigned: dict[str, Partitions] = {}
        """By the last description of each stable group."""
        self._describe_due_s: dict[int, float] = {}
        """When to describe all groups of a coordinator again, by node id."""
        self._reads = CoordinatorTasks("reading groups of")
        self._incomplete_finds = 0
        self.poll_s: dict[int, float] = {}
        """The duration of the last read of groups, by coordinator."""

    async def run(self) -> None:
        try:
            await run_together(
                repeat(self._find_regularly, self._failures.cluster, _MIN_FIND_INTERVAL_S),
                repeat(self._read_regularly, self._failures.cluster, _MIN_FIND_INTERVAL_S),
            )
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Cancel the reads and close the connections; bounded in time."""
        await self._reads.aclose()
        await self._brokers.aclose()

    async def find_groups(self) -> bool:
        """List the groups once. Returns whether any broker responded."""
        if await self._finder.find():
            self._failures.recover(self._failures.cluster)
            return True
        reason = await self._brokers.explain_unreachable()
        self._failures.add(self._failures.cluster, f"consumer groups cannot be read, {reason}")
        return False

    async def _find_regularly(self) -> None:
        self._find_now.clear()
        interval_s = self._settings.find_interval_s
        # A coordinator that is loading, or hangs, lists no groups.
        if await self.find_groups() and self._listing.is_complete:
            self._incomplete_finds = 0
            await asyncio.sleep(min(_MIN_FIND_INTERVAL_S, interval_s))
            await until_set(self._find_now, interval_s - _MIN_FIND_INTERVAL_S)
        else:
            backoff_s = _FIND_BACKOFF_S[min(self._incomplete_finds, len(_FIND_BACKOFF_S) - 1)]
            self._incomplete_finds += 1
            await asyncio.sleep(min(backoff_s, interval_s))

    async def _read_regularly(self) -> None:
        now_s = time.monotonic()
        if self._read_now.is_set() or now_s >= self._grouped_s + self._settings.interval_s:
            self._read_now.clear()
            self._grouped_s = now_s
            await self._group_by_partition()
        self._start_reads()
        await until_set(self._read_now, min(LOG_ENDS_INTERVAL_S, self._settings.interval_s))

    async def _group_by_partition(self) -> None:
        """Update `_by_coordinator` from the listing."""
        wanted: dict[int, dict[int, list[str]]] = {}
        count = len(self._finder.commit_leaders) or USUAL_PARTITIONS
        async for group in with_pauses(list(self._listing.groups), GROUPS_PER_PAUSE):
            listed = self._listing.groups.get(group)
            if listed is None:
                continue
            if not self._observations.wants(group):
                self._forget(group, deleted=self._listing.is_unlisted(group))
            elif listed.coordinator is not None:
                of_coordinator = wanted.setdefault(listed.coordinator, {})
                of_coordinator.setdefault(commit_partition(group, count), []).append(group)
        for node_id in self.poll_s.keys() - wanted.keys():
            del self.poll_s[node_id]
        before, self._by_coordinator = self._by_coordinator, {}
        for node_id, of_coordinator in wanted.items():
            previous = before.get(node_id, {})
            partitions = self._by_coordinator[node_id] = {}
            for number, groups in of_coordinator.items():
                partitions[number] = previous.get(number) or CommitPartition(groups)
                partitions[number].take_groups(groups)

    def _start_reads(self) -> None:
        for node_id in self._by_coordinator:
            self._reads.start(node_id, partial(self._read_from, node_id))

    async def _read_from(self, node_id: int) -> None:
        partitions = self._by_coordinator[node_id]
        connection = self._brokers.connection(node_id)
        if connection is None:
            reason = f"its coordinator, broker {node_id}, has left the cluster"
            self._failures.add_groups(
                {group: reason for partition in partitions.values() for group in partition.groups}
            )
            self._find_now.set()
            return
        key = self._failures.broker(node_id)
        try:
            await connection.connect()
            await self._read_ends(node_id, connection, partitions)
            began_s = time.monotonic()
            due = [partition for partition in partitions.values() if partition.due_s <= began_s]
            if due:
                await self._read_groups(node_id, connection, due)
                self.poll_s[node_id] = time.monotonic() - began_s
        except KAFKA_FAILURES as error:
            if self._brokers.connection(node_id) is connection:  # else the broker left meanwhile
                reason = broker_error_text(node_id, error, self._brokers.timeout_s)
                count = sum(len(partition.groups) for partition in partitions.values())
                self._failures.add(key, f"{reason}; consumer groups not read: {count}")
            self._find_now.set()
        else:
            self._failures.recover(key)

    async def _read_ends(
        self, node_id: int, connection: BrokerConnection, partitions: Mapping[int, CommitPartition]
    ) -> None:
        """Read the log end offsets of the partitions that this broker leads."""
        leaders = self._finder.commit_leaders
        led = tuple(number for number in partitions if leaders.get(number) == node_id)
        if not led:
            return
        part = TopicPart(COMMITS_TOPIC, led)
        response = await connection.send(OffsetsRequest("read_uncommitted", [part], LATEST))
        for _, returned in read_offsets(response):
            for number, error_code, _, end in returned:
                partitions[number].take_end(end if error_code == NONE else None)

    async def _read_groups(
        self, node_id: int, connection: BrokerConnection, due: Sequence[CommitPartition]
    ) -> None:
        groups = [group for partition in due for group in partition.groups]
        if time.monotonic() >= self._describe_due_s.get(node_id, 0.0):
            self._describe_due_s[node_id] = time.monotonic() + self._settings.find_interval_s
            for partition in self._by_coordinator.get(node_id, {}).values():
                for group in partition.groups:
                    self._described.pop(group, None)
        requested_at_ms = epoch_ms()
        read = await asyncio.gather(*(_fetch(connection, partition) for partition in due))
        for chunk in by_count(groups, GROUPS_PER_REQUEST):
            await self._describe(node_id, connection, chunk)
        for partition, responses in zip(due, read, strict=True):
            partition.take_responses(responses, time.monotonic(), self._settings.interval_s)
            for committed in responses.values():
                await self._take_all(committed, requested_at_ms)

    async def _describe(
        self, node_id: int, connection: BrokerConnection, groups: Sequence[str]
    ) -> None:
        """Describe the groups that this coordinator has not described since the last due time."""
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
            listed = self._listing.groups.get(group)
            description = descriptions.get(group)
            self._described[group] = _consumer_group(description, node_id, listed)
            self._assigned.pop(group, None)
            if description is not None and description.assigned is not None:
                self._assigned[group] = description.assigned

    async def _take_all(self, groups: Mapping[str, CommittedGroup], requested_at_ms: int) -> None:
        failed: dict[str, str] = {}
        async for group, committed in with_pauses(groups.items(), GROUPS_PER_PAUSE):
            reason = self._take(group, committed, requested_at_ms)
            if reason is not None:
                failed[group] = reason
        self._failures.add_groups(failed)

    def _take(self, group: str, committed: CommittedGroup, requested_at_ms: int) -> str | None:
        """Observe a group. Return why some of its offsets are unknown."""
        if group not in self._listing.groups or not self._observations.wants(group):
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
        assigned = self._assigned.pop(group, None)
        if assigned is not None:
            before = self._unassigned.get(group)
            now = self._unassigned[group] = _unassigned(committed, assigned)
            # A cooperative rebalance and a new partition leave partitions unassigned for a moment.
            both = None if now and before is None else _by_topic(now & (before or set()))
            described = self._described[group] = replace(described, unassigned=both)
        self._observations.on_offsets(group, committed, described, requested_at_ms)
        if errors:
            return f"{len(errors)} of its offsets are unknown: {group_error_text(errors[0])}"
        return None

    def _exists(self, group: str, requested_at_ms: int) -> bool:
        exists = self._listing.exists_without_offsets(group)
        if exists is None and group in self._read:
            self._find_now.set()
        elif exists is False:
            self._forget(group, deleted=True)
            self._observations.on_deleted(group, requested_at_ms)
        return exists is True

    def _forget(self, group: str, *, deleted: bool) -> None:
        self._read.discard(group)
        for of_groups in (self._described, self._assigned, self._unassigned):
            of_groups.pop(group, None)
        self._failures.discard(self._failures.group(group))
        if deleted:
            self._listing.groups.pop(group, None)


async def _fetch(connection: BrokerConnection, partition: CommitPartition) -> Responses:
    responses: dict[OffsetFetchResponse, Mapping[str, CommittedGroup]] = {}
    for chunk in by_count(partition.groups, GROUPS_PER_REQUEST):
        responses |= await fetch_offsets(connection, chunk, partition.decoded)
    return responses


def _unassigned(committed: CommittedGroup, assigned: Mapping[str, set[int]]) -> Partitions:
    """The partitions with a committed offset that no member reads."""
    rest = {name: t.offsets.keys() - assigned.get(name, ()) for name, t in committed.topics.items()}
    return {(name, number) for name, numbers in rest.items() for number in numbers}


def _by_topic(partitions: Partitions) -> dict[str, list[int]]:
    result: dict[str, list[int]] = {}
    for name, number in sorted(partitions):
        result.setdefault(name, []).append(number)
    return result


def _consumer_group(
    description: GroupDescription | None, coordinator: int, listed: ListedGroup | None
) -> ConsumerGroup:
    protocol_type = listed.protocol_type or None if listed is not None else None
    # A group with offsets is not dead: it is of a kind that has no such description.
    if description is None or description.error_code or description.state == DEAD:
        return ConsumerGroup(coordinator=coordinator, protocol_type=protocol_type)
    # A stable group whose assignment cannot be decoded, or without members, assigns by itself.
    is_unknown = description.members and description.state != STABLE
    return ConsumerGroup(
        state=description.state,
        members=description.members,
        members_without_partitions=description.members_without_partitions,
        coordinator=coordinator,
        protocol_type=protocol_type,
        unassigned=None if is_unknown else {},
    )

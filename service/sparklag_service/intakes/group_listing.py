"""The consumer groups of a cluster, their coordinators and commit partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from sparklag_kafka.brokers.group_offsets import find_coordinators, list_groups
from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.errors import KAFKA_FAILURES, broker_error_text
from sparklag_kafka.protocol.groups import CommittedGroup, OffsetFetchResponse
from sparklag_schemas.messages.bounds import MAX_NAME
from sparklag_schemas.runtime.tasks import with_pauses
from sparklag_schemas.settings.clusters import NamePatterns
from sparklag_service.intakes.group_commits import ClusterFailures, group_error_text

COMMITS_TOPIC: Final = "__consumer_offsets"
USUAL_PARTITIONS: Final = 50
"""Kafka's default, for a topic that cannot be described."""
LOG_ENDS_INTERVAL_S: Final = 0.5
"""The time between two reads of log end offsets."""
_CACHED_GROUPS: Final = 65_536
Responses = Mapping[OffsetFetchResponse, Mapping[str, CommittedGroup]]


@lru_cache(_CACHED_GROUPS)
def commit_partition(group: str, partitions: int) -> int:
    """The partition of COMMITS_TOPIC that `group` commits to, as Kafka's
    `GroupMetadataManager.partitionFor` computes it: Java's hash of the text without its sign."""
    code = 0
    text = group.encode("utf-16-be")
    for at in range(0, len(text), 2):
        code = (31 * code + (text[at] << 8 | text[at + 1])) & 0xFFFFFFFF
    return min(code, (1 << 32) - code) % (1 << 31) % partitions


@dataclass
class CommitPartition:
    """The groups of one coordinator that commit to one partition. Times are `time.monotonic()`."""

    groups: Sequence[str]
    due_s: float = 0.0
    """When to read their offsets."""
    decoded: Responses = field(default_factory=dict)
    _end: int | None = None
    _has_moved: bool = False

    def take_groups(self, groups: Sequence[str]) -> None:
        if groups != self.groups:
            self.groups, self.due_s = groups, 0.0

    def take_end(self, end: int | None) -> None:
        """Store the partition's log end offset. None: no right to read it."""
        if end is not None and end != self._end:
            self._has_moved, self.due_s = True, 0.0
        self._end = end

    def take_responses(self, responses: Responses, now_s: float, interval_s: float) -> None:
        """Store the committed offsets of the groups, which were read after the log end offset."""
        has_changed = responses.keys() != self.decoded.keys()
        self.decoded = responses
        if has_changed and self._end is None:
            # Groups that committed are likely to commit again soon.
            self.due_s = now_s + min(2 * LOG_ENDS_INTERVAL_S, interval_s)
        elif self._has_moved and not has_changed:
            # The responses may not have the appended commits yet, or another group made them.
            self.due_s = now_s
        else:
            self.due_s = now_s + interval_s
        self._has_moved = False


_MAX_NAME: Final = MAX_NAME - 300
"""Characters: a query id also contains the cluster's alias."""
GROUPS_PER_PAUSE: Final = 500


@dataclass
class ListedGroup:
    """A group as the brokers report it."""

    coordinator: int | None
    """A node id. None: unknown."""
    protocol_type: str = ""
    """Empty: unknown, or the group has had no member."""
    listed_round: int = 0
    """The last round in which a broker listed it."""
    empty_round: int | None = None
    """The round in which its coordinator first had no offsets for it."""


class GroupListing:
    """The groups by id, as brokers list them in rounds. Pure."""

    def __init__(self) -> None:
        self.groups: dict[str, ListedGroup] = {}
        self._round = self._complete_round = 0

    @property
    def is_complete(self) -> bool:
        """True if every broker responded in the last round, and each group has a coordinator."""
        return self._complete_round == self._round and all(
            group.coordinator is not None for group in self.groups.values()
        )

    def begin_round(self) -> None:
        """Begin a round, in which every broker lists its groups again."""
        self._round += 1

    def add(self, group: str, coordinator: int, protocol_type: str = "") -> bool:
        """Add a group with its coordinator. Return whether the group or its coordinator is new."""
        listed = self.groups.setdefault(group, ListedGroup(None))
        is_new = listed.coordinator != coordinator
        listed.coordinator, listed.protocol_type = coordinator, protocol_type
        listed.listed_round = self._round
        return is_new

    def end_round(self, remembered: Iterable[str] = ()) -> list[str]:
        """End a round in which every broker has responded. Return the groups, also of `remembered`,
        that no broker lists."""
        self._complete_round = self._round
        for group in remembered:
            self.groups.setdefault(group, ListedGroup(None))
        return [group for group in self.groups if self.is_unlisted(group)]

    def is_unlisted(self, group: str) -> bool:
        """Return whether no broker listed the group in the last complete round."""
        return self.groups[group].listed_round < self._complete_round

    def set_coordinator(self, group: str, coordinator: int | None) -> None:
        """Set the coordinator of a listed group. None: the coordinator moved, or there is none."""
        if group in self.groups:
            self.groups[group].coordinator = coordinator

    def has_offsets(self, group: str) -> None:
        """Store that the coordinator has offsets of the group."""
        self.groups[group].empty_round = None

    def exists_without_offsets(self, group: str) -> bool | None:
        """Return whether a group without offsets exists. None: unknown until the next round is
        complete."""
        listed = self.groups[group]
        if self.is_unlisted(group):
            return False
        if listed.empty_round is None:
            listed.empty_round = self._round
        return True if listed.listed_round > listed.empty_round else None


@dataclass(eq=False, repr=False)
class GroupFinder:
    """Updates `listing`. Looks up `remembered` groups that no broker lists. Calls `on_change` when
    a group is new, has another coordinator, or is unlisted."""

    _patterns: NamePatterns
    _brokers: BrokerPool
    _failures: ClusterFailures
    _remembered: Callable[[], Iterable[str]]
    _on_change: Callable[[], None]
    _node_ids: set[int] = field(default_factory=set)
    listing: GroupListing = field(default_factory=GroupListing)
    commit_leaders: Mapping[int, int] = field(default_factory=dict)
    """The leaders of COMMITS_TOPIC, by partition. Empty: the topic does not exist yet, or cannot be
    described."""

    async def find(self) -> bool:
        """List the groups of every broker. False if no broker responds."""
        described = await self._brokers.refresh([COMMITS_TOPIC])
        if described is None:
            return False
        for topic in described:
            self.commit_leaders = topic.leaders
        node_ids = set(self._brokers.brokers)
        for removed in self._node_ids - node_ids:
            keys = (self._list_key(removed), self._failures.descriptions(removed))
            self._failures.discard(*keys, self._failures.broker(removed))
        self._node_ids = node_ids
        self.listing.begin_round()
        # Each list counts as soon as it arrives: a broker that hangs delays only its own.
        if all(await asyncio.gather(*map(self._list_groups, sorted(node_ids)))):
            remembered = filter(self._patterns.select, self._remembered())
            unlisted = self.listing.end_round(remembered)
            if unlisted:
                await self._find_coordinators(unlisted)
                self._on_change()
        return True

    async def _list_groups(self, node_id: int) -> bool:
        """Return whether the broker listed all its groups."""
        connection = self._brokers.connection(node_id)
        if connection is None:
            return False
        key = self._list_key(node_id)
        try:
            error_code, groups = await list_groups(connection)
        except KAFKA_FAILURES as error:
            reason = broker_error_text(node_id, error, self._brokers.timeout_s)
            self._failures.add(key, f"consumer groups may be missing: {reason}")
            return False
        if error_code:
            reason = group_error_text(error_code)
            self._failures.add(key, f"broker {node_id} does not list all of its groups: {reason}")
        too_long = 0
        async for group, protocol_type in with_pauses(groups, GROUPS_PER_PAUSE):
            if not self._patterns.select(group):
                continue
            if len(group) > _MAX_NAME:
                too_long += 1
            elif self.listing.add(group, node_id, protocol_type):
                self._on_change()
        if too_long:
            reason = f"with names of over {_MAX_NAME} characters are left out"
            self._failures.add(key, f"{too_long} consumer groups {reason}")
        elif not error_code:
            self._failures.recover(key)
        return not error_code

    async def _find_coordinators(self, groups: Sequence[str]) -> None:
        failed = {}
        async for group, node_id, error_code in find_coordinators(self._brokers, groups):
            self.listing.set_coordinator(group, None if error_code else node_id)
            if error_code:
                failed[group] = group_error_text(error_code)
        self._failures.add_groups(failed)

    def _list_key(self, node_id: int) -> str:
        return f"{self._failures.broker(node_id)}, its list"

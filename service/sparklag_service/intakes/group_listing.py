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
from sparklag_schemas import GroupSettings
from sparklag_schemas.messages.bounds import MAX_NAME
from sparklag_schemas.runtime.tasks import with_pauses
from sparklag_schemas.settings.clusters import NamePatterns
from sparklag_service.intakes.group_commits import ClusterFailures, group_error_text

COMMITS_TOPIC: Final = "__consumer_offsets"
USUAL_PARTITIONS: Final = 50
"""Kafka's default, used if the topic cannot be described."""
LOG_ENDS_INTERVAL_S: Final = 0.5
"""The time between two reads of log end offsets."""
_CACHED_GROUPS: Final = 65_536
Responses = Mapping[OffsetFetchResponse, Mapping[str, CommittedGroup]]


@lru_cache(_CACHED_GROUPS)
def commit_partition(group: str, partitions: int) -> int:
    """The number of the partition that `group` commits to: Kafka's
    `GroupMetadataManager.partitionFor`, Java's hash of the text without its sign."""
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
    """The time to read their offsets."""
    decoded: Responses = field(default_factory=dict)
    """The last responses."""
    _end: int | None = None
    _has_moved: bool = False

    def take_groups(self, groups: Sequence[str]) -> None:
        """Take the groups of the newest listing."""
        if groups != self.groups:
            self.groups, self.due_s = groups, 0.0

    def take_end(self, end: int | None) -> None:
        """Take its log end offset. None: there is no right to read it."""
        if end is not None and end != self._end:
            self._has_moved, self.due_s = True, 0.0
        self._end = end

    def take_responses(self, responses: Responses, now_s: float, interval_s: float) -> None:
        """Take what the groups have committed, read after its log end offset."""
        has_changed = responses.keys() != self.decoded.keys()
        self.decoded = responses
        if has_changed and self._end is None:
            # Those that commit are likely to do so again.
            self.due_s = now_s + min(2 * LOG_ENDS_INTERVAL_S, interval_s)
        elif self._has_moved and not has_changed:
            # What is appended may be answered a moment later; or it was another group's.
            self.due_s = now_s
        else:
            self.due_s = now_s + interval_s
        self._has_moved = False


_MAX_NAME: Final = MAX_NAME - 300
"""Characters: a query id has the cluster's alias before the group."""
_WITHOUT_OFFSETS: Final = frozenset({"share"})
"""Protocol types of groups that commit no offsets."""
GROUPS_PER_PAUSE: Final = 500


@dataclass
class ListedGroup:
    """A group as the brokers report it."""

    coordinator: int | None
    """A node id. None: unknown."""
    listed_round: int = 0
    """The last round in which a broker listed it."""
    empty_round: int | None = None
    """The round in which its coordinator first had no offsets of it."""


class GroupListing:
    """The groups by id. Brokers list them in rounds. Pure."""

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
        """Begin a round, in which every broker lists its groups anew."""
        self._round += 1

    def add(self, group: str, coordinator: int) -> bool:
        """Add a group of that coordinator; return whether that is new."""
        listed = self.groups.setdefault(group, ListedGroup(None))
        is_new = listed.coordinator != coordinator
        listed.coordinator = coordinator
        listed.listed_round = self._round
        return is_new

    def end_round(self, remembered: Iterable[str] = ()) -> list[str]:
        """End a round in which every broker has responded; return the groups that none lists,
        `remembered` ones included."""
        self._complete_round = self._round
        for group in remembered:
            self.groups.setdefault(group, ListedGroup(None))
        return [group for group in self.groups if self.is_unlisted(group)]

    def is_unlisted(self, group: str) -> bool:
        """Return whether no broker listed the group in the last complete round."""
        return self.groups[group].listed_round < self._complete_round

    def set_coordinator(self, group: str, coordinator: int | None) -> None:
        """Set it where the group is still in the listing. None: it has moved, or there is none."""
        if group in self.groups:
            self.groups[group].coordinator = coordinator

    def has_offsets(self, group: str) -> None:
        """Note that the coordinator has offsets of the group."""
        self.groups[group].empty_round = None

    def exists_without_offsets(self, group: str) -> bool | None:
        """Return whether a group of which its coordinator has no offsets exists. None: unknown
        before the next round is complete."""
        listed = self.groups[group]
        if self.is_unlisted(group):
            return False
        if listed.empty_round is None:
            listed.empty_round = self._round
        return True if listed.listed_round > listed.empty_round else None

    def discard(self, group: str) -> None:
        """Remove a deleted group."""
        self.groups.pop(group, None)


class GroupFinder:
    """Updates `listing`. `remembered` groups that no broker lists are looked up too; `on_change` is
    called when a group is new, has another coordinator, or is listed by none."""

    def __init__(
        self,
        settings: GroupSettings,
        brokers: BrokerPool,
        failures: ClusterFailures,
        remembered: Callable[[], Iterable[str]],
        on_change: Callable[[], None],
    ) -> None:
        self.listing = GroupListing()
        self.commit_leaders: Mapping[int, int] = {}
        """The leaders of COMMITS_TOPIC, by partition. Empty: there is none yet, or no right to see
        it."""
        self._brokers = brokers
        self._failures = failures
        self._remembered = remembered
        self._on_change = on_change
        self._patterns = NamePatterns(settings.allow, settings.deny)
        self._node_ids: set[int] = set()

    async def find(self) -> bool:
        """Get the list of every broker; False where no broker responds."""
        described = await self._brokers.refresh([COMMITS_TOPIC])
        if described is None:
            return False
        for topic in described:
            self.commit_leaders = topic.leaders
        node_ids = set(self._brokers.brokers)
        for left in self._node_ids - node_ids:
            keys = (self._list_key(left), self._failures.descriptions(left))
            self._failures.discard(*keys, self._failures.broker(left))
        self._node_ids = node_ids
        self.listing.begin_round()
        # Each list counts as soon as it is there: a broker that hangs delays only its own.
        if all(await asyncio.gather(*map(self._list_groups, sorted(node_ids)))):
            remembered = filter(self._patterns.select, self._remembered())
            unlisted = self.listing.end_round(remembered)
            if unlisted:
                await self._find_coordinators(unlisted)
                self._on_change()
        return True

    async def _list_groups(self, node_id: int) -> bool:
        """Return whether the broker has listed all of its groups."""
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
            if protocol_type in _WITHOUT_OFFSETS or not self._patterns.select(group):
                continue
            if len(group) > _MAX_NAME:
                too_long += 1
            elif self.listing.add(group, node_id):
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

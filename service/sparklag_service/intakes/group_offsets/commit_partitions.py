"""The partitions of `__consumer_offsets`, each with the groups that commit to it. Pure.

A group commits to the partition that the hash of its id names, and the leader of that partition
coordinates the group. Where its log ends shows that none of its groups has committed, or that one
may have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from sparklag_kafka.protocol.offset_fetch import CommittedGroup, OffsetFetchResponse

COMMITS_TOPIC: Final = "__consumer_offsets"
USUAL_PARTITIONS: Final = 50
"""Kafka's default, for where the topic cannot be described."""
COMMITS_SEEN_S: Final = 0.5
"""How often the log ends are read."""
_CACHED_GROUPS: Final = 65_536

Responses = Mapping[OffsetFetchResponse, Mapping[str, CommittedGroup]]


@lru_cache(_CACHED_GROUPS)
def commit_partition(group: str, partitions: int) -> int:
    """The number of the partition that `group` commits to, of so many. Kafka's
    `GroupMetadataManager.partitionFor`: Java's hash of the text, without its sign."""
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
    """The last responses."""
    _end: int | None = None
    _has_moved: bool = False

    def take_groups(self, groups: Sequence[str]) -> None:
        """The groups that there are by the newest listing."""
        if groups != self.groups:
            self.groups, self.due_s = groups, 0.0

    def take_end(self, end: int | None) -> None:
        """Where its log ends. None: that may not be read."""
        if end is not None and end != self._end:
            self._has_moved, self.due_s = True, 0.0
        self._end = end

    def take_responses(self, responses: Responses, now_s: float, interval_s: float) -> None:
        """What the groups have committed, read after its end was."""
        has_changed = responses.keys() != self.decoded.keys()
        self.decoded = responses
        if has_changed and self._end is None:
            # Those that commit are likely to do so again.
            self.due_s = now_s + min(2 * COMMITS_SEEN_S, interval_s)
        elif self._has_moved and not has_changed:
            # What is appended may be answered a moment later; or it was another group's.
            self.due_s = now_s
        else:
            self.due_s = now_s + interval_s
        self._has_moved = False

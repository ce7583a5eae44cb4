"""Which offsets a query commits to which group, and the results of commits. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from sparklag_kafka.errors import (
    COORDINATOR_NOT_AVAILABLE,
    GROUP_FORBIDDEN,
    NOT_COORDINATOR,
    TOPIC_FORBIDDEN,
    UNKNOWN_GROUP,
    UNKNOWN_TOPIC,
)
from sparklag_kafka.protocol.groups import CommittedTopic
from sparklag_offsets.restore.positions import minimum_offsets
from sparklag_schemas import MirrorSettings, Offsets
from sparklag_schemas.messages.enumerations import traits_of
from sparklag_schemas.messages.query_names import is_live
from sparklag_schemas.settings.clusters import NamePatterns
from sparklag_schemas.text.printable import first_few, printable
from sparklag_service.intakes.group_commits import CommitMetadata, group_error_text, parse_metadata
from sparklag_service.tracking.query_state import QueryState
from sparklag_service.view.view import View

_RENEW_AFTER_MS: Final = 3_600_000
"""Offsets of a group without members expire after the brokers' `offsets.retention.minutes`, which
is rarely less than an hour."""


class CommitDecision(NamedTuple):
    """The offsets to commit: empty if the group has them, or belongs to another query."""

    offsets: Offsets
    refused: str | None = None
    """Why nothing may be committed, if that is to be reported."""
    superseded: bool = False
    """The group has a newer position of the query, or one of its successor."""


def decide_commit(
    position: MirroredPosition, committed: Mapping[str, CommittedTopic], ownership: GroupOwnership
) -> CommitDecision:
    """Decide which offsets of `position` to commit to a group with the offsets `committed`."""
    metadata: dict[tuple[str, int], CommitMetadata] = {}
    for name, topic in committed.items():
        for number in topic.offsets:
            parsed = parse_metadata(topic.metadata.get(number, ""))
            if parsed is None:
                return CommitDecision(
                    {},
                    f"topic {name}, partition {number} was not committed by the mirror: the group"
                    " is somebody else's, so nothing is committed to it; delete it, or choose"
                    " another mirror.group",
                )
            metadata[name, number] = parsed
    own = [parsed for parsed in metadata.values() if parsed.query_id == position.query_id]
    if own and max(own).observed_at_ms > position.observed_at_ms:
        return CommitDecision({}, superseded=True)
    # Several queries may have committed: a successor may read fewer partitions.
    owner = max(metadata.values()).query_id if metadata else None
    if owner != position.query_id:
        others = ownership.live(ownership.rivals(position), position) if owner is None else [owner]
        if others and (position.ended or ownership.has_ended(position.query_id)):
            # A query that ended never takes over, even if it has the name of a running one.
            return CommitDecision({}, superseded=True)
        if ownership.live(others, position):
            consequence = f"it stays that of {owner}" if owner else "nothing is committed to it"
            queries = ownership.describe({position.query_id, *others})
            return CommitDecision(
                {},
                f"queries {queries} would share it: {consequence}; give them names of their own,"
                " or put {query_id} into mirror.group",
            )
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
                # Committed from this same observation.
                if age_ms < (_RENEW_AFTER_MS if is_equal else 1):
                    continue
            due.setdefault(topic, {})[number] = offset
    return due


_NO_RESPONSE: Final = -1
"""For a response that lacks the error code."""
_METADATA_TOO_LARGE: Final = 12
_HAS_MEMBERS: Final = frozenset({22, 23, 25, 27, 82, 110, 111, 113})
"""Codes for a wrong generation, member id or epoch: the group has members."""
_MOVED: Final = frozenset({COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR})
_GROUP_REASONS: Final[Mapping[int, str]] = {
    GROUP_FORBIDDEN: "no right to it: the mirror needs Read on the group",
    UNKNOWN_GROUP: "it is no consumer group, so the mirror commits nothing to it",
}
_TOPIC_REASONS: Final[Mapping[int, str]] = {
    UNKNOWN_TOPIC: "Kafka knows no such topic, or not all of its partitions",
    _METADATA_TOO_LARGE: "the metadata of the offset is longer than offset.metadata.max.bytes",
    TOPIC_FORBIDDEN: "no right to it: the mirror needs Read on the topic",
    _NO_RESPONSE: "its coordinator does not report whether it was committed",
}


class CommitOutcome(NamedTuple):
    """The result of a commit. `reason`: the error, if any."""

    committed: bool
    """True if any partition was committed."""
    reason: str | None = None
    refused: bool = False
    """True if the group must not be mirrored to."""
    moved: bool = False
    """True if the group has another coordinator now."""


def group_outcome(code: int) -> CommitOutcome:
    """The outcome of an error that concerns the whole group."""
    if code in _HAS_MEMBERS:
        reason = "it has members of its own, so the mirror commits nothing to it"
        return CommitOutcome(False, reason, refused=True)
    return CommitOutcome(
        False,
        _GROUP_REASONS.get(code) or group_error_text(code),
        refused=code == UNKNOWN_GROUP,
        moved=code in _MOVED,
    )


def commit_outcome(offsets: Offsets, codes: Mapping[str, Mapping[int, int]]) -> CommitOutcome:
    """The outcome of a commit of `offsets`, from the error codes in its response."""
    failed = Counter(
        (topic, code)
        for topic, numbers in offsets.items()
        for number in numbers
        if (code := codes.get(topic, {}).get(number, _NO_RESPONSE))
    )
    if not failed:
        return CommitOutcome(True)
    failures, total = failed.total(), sum(map(len, offsets.values()))
    first, *others = {code for _, code in failed}
    if failures == total and not others and first not in _TOPIC_REASONS:
        return group_outcome(first)
    reasons = [
        f"topic {topic}: {_TOPIC_REASONS.get(code) or group_error_text(code)}"
        for topic, code in failed
    ]
    reason = f"{failures} of {total} partitions not committed: {first_few(reasons, '; ')}"
    return CommitOutcome(failures < total, reason)


_CACHED: Final = 16_384
_MAX_SHOWN: Final = 100
"""Characters shown of a name or an id."""


@dataclass(frozen=True)
class MirroredPosition:
    """The offsets of a query on one Kafka cluster, and the group to commit them to."""

    query_id: str
    name: str | None
    group: str
    observed_at_ms: int
    offsets: Offsets
    ended: bool = False


class MirrorPlan:
    """The settings of `[mirror]` applied to queries."""

    def __init__(self, settings: MirrorSettings) -> None:
        self._template = settings.group
        self._is_mirrored = lru_cache(_CACHED)(
            NamePatterns(settings.queries, settings.exclude).select
        )

    def group(self, name: str | None, query_id: str, cluster: str) -> str | None:
        """The group of a query on a cluster, by its alias. None: the query is not mirrored."""
        if not self._is_mirrored(name, query_id):
            return None
        return self._template.format(query=name or query_id, query_id=query_id, cluster=cluster)

    def position(self, state: QueryState, cluster: str) -> MirroredPosition | None:
        """The position to commit. None: the query is not mirrored, or has no offsets there."""
        processed = [s.processed for s in state.sources if s.cluster == cluster and s.processed]
        # A consumer group needs no mirror.
        if not processed or traits_of(state.origin).commits_offsets:
            return None
        group = self.group(state.query, state.query_id, cluster)
        if group is None:
            return None
        return MirroredPosition(
            query_id=state.query_id,
            name=state.query,
            group=group,
            observed_at_ms=state.observed_at,
            offsets=minimum_offsets(processed),
            ended=state.ended,
        )


@dataclass(eq=False, repr=False)
class GroupOwnership:
    """The queries of the groups on one Kafka cluster, from the view, whichever instance measures
    them."""

    _plan: MirrorPlan
    _view: View
    _cluster: str
    _silent_after_s: float

    def live(self, query_ids: Iterable[str], position: MirroredPosition) -> list[str]:
        """The queries of `query_ids` that run, as far as the view shows.

        A query whose last event is much older than the last event of `position` is dead, with its
        embedded service. A query that ended counts for `silent_after_s` more: a live driver might
        contradict.
        """
        own = self._view.get(position.query_id)
        live = []
        for query_id in query_ids:
            entry = self._view.get(query_id)
            if entry is None:
                continue
            event = entry.event
            ended_s = (event.measured_at - (event.status_since or 0)) / 1000
            if not is_live(event) and ended_s > self._silent_after_s:
                continue
            if own is None or own.received_s - entry.received_s <= self._silent_after_s:
                live.append(query_id)
        return live

    def has_ended(self, query_id: str) -> bool:
        """Return whether the view shows that a query ended, or is no longer observed."""
        entry = self._view.get(query_id)
        return entry is not None and not is_live(entry.event)

    def rivals(self, position: MirroredPosition) -> list[str]:
        """The ids of other queries that are mirrored to the same group because they share its name.

        Other reasons for a shared group (a query named like another's id) show in the metadata of
        the first commit.
        """
        if position.name is None:
            return []
        return [
            event.query_id
            for event in (entry.event for entry in self._view.named(position.name))
            if event.query_id != position.query_id
            and not traits_of(event.origin).commits_offsets
            and any(topic.cluster == self._cluster for topic in event.topics)
            and self._plan.group(event.query, event.query_id, self._cluster) == position.group
        ]

    def describe(self, query_ids: Collection[str]) -> str:
        """Names and ids of queries for people; only a few, since thousands may share a name."""
        return first_few(sorted(query_ids), " and ", show=self._describe)

    def _describe(self, query_id: str) -> str:
        entry = self._view.get(query_id)
        name = entry.event.query if entry is not None else None
        shown_id = printable(query_id, _MAX_SHOWN)
        return f"{printable(name, _MAX_SHOWN)} ({shown_id})" if name is not None else shown_id

"""Which query is mirrored to which group, and which one owns a group that several want. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from sparklag_offsets.restore.comparison import minimum_offsets
from sparklag_schemas import LagEvent, MirrorSettings, Offsets
from sparklag_schemas.enumerations import traits_of
from sparklag_schemas.name_patterns import NamePatterns
from sparklag_schemas.printable import first_few, printable
from sparklag_schemas.query_names import is_live
from sparklag_service.tracking.query_state import QueryState
from sparklag_service.view.view import View

_CACHED: Final = 16_384
_MAX_SHOWN: Final = 100
"""Characters of a name, or an id."""


@dataclass(frozen=True)
class MirroredPosition:
    """The offsets of a query on one Kafka cluster, to be committed to its group there."""

    query_id: str
    name: str | None
    group: str
    observed_at_ms: int
    offsets: Offsets
    ended: bool = False


class MirrorPlan:
    """The settings of `[mirror]`, by query."""

    def __init__(self, settings: MirrorSettings) -> None:
        self._template = settings.group
        self._is_mirrored = lru_cache(_CACHED)(
            NamePatterns(settings.queries, settings.exclude).select
        )

    def group(self, name: str | None, query_id: str, cluster: str) -> str | None:
        """The group of a query on the cluster of that alias. None: it is not mirrored."""
        if not self._is_mirrored(name, query_id):
            return None
        return self._template.format(query=name or query_id, query_id=query_id, cluster=cluster)

    def position(self, state: QueryState, cluster: str) -> MirroredPosition | None:
        """None for a query that is not mirrored, or has processed nothing on that cluster."""
        processed = [s.processed for s in state.sources if s.cluster == cluster and s.processed]
        # A consumer group is its own mirror.
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


class GroupOwnership:
    """Of the groups on one Kafka cluster, by what the view has of their queries, whichever instance
    measures those."""

    def __init__(self, plan: MirrorPlan, view: View, cluster: str, silent_after_s: float) -> None:
        self._plan = plan
        self._view = view
        self._cluster = cluster
        self._silent_after_s = silent_after_s

    def live(self, query_ids: Iterable[str], position: MirroredPosition) -> list[str]:
        """Those of other queries that are running, as far as is known.

        One whose last event is much older than the last one of `position` is dead: its embedded
        service died with it.
        """
        own = self._view.get(position.query_id)
        live = []
        for query_id in query_ids:
            entry = self._view.get(query_id)
            if entry is None or self._has_ended_for_good(entry.event):
                continue
            if own is None or own.received_s - entry.received_s <= self._silent_after_s:
                live.append(query_id)
        return live

    def _has_ended_for_good(self, event: LagEvent) -> bool:
        """Whether it has for so long that a live driver would have contradicted it."""
        ended_s = (event.measured_at - (event.status_since or 0)) / 1000
        return not is_live(event) and ended_s > self._silent_after_s

    def has_ended(self, query_id: str) -> bool:
        """Whether a query is known to run no more, or to be observed no more."""
        entry = self._view.get(query_id)
        return entry is not None and not is_live(entry.event)

    def rivals(self, position: MirroredPosition) -> list[str]:
        """The ids of other queries that are mirrored to the same group, as they share its name.

        Other ways to one group (a query named like another's id) show in the metadata of the first
        commit.
        """
        if position.name is None:
            return []
        events = (entry.event for entry in self._view.named(position.name))
        return [event.query_id for event in events if self._is_rival(event, position)]

    def describe(self, query_ids: Collection[str]) -> str:
        """Queries by name and id, for people: a few, since thousands may share a name."""
        return first_few(sorted(query_ids), " and ", show=self._describe)

    def _describe(self, query_id: str) -> str:
        entry = self._view.get(query_id)
        name = entry.event.query if entry is not None else None
        shown_id = printable(query_id, _MAX_SHOWN)
        return f"{printable(name, _MAX_SHOWN)} ({shown_id})" if name is not None else shown_id

    def _is_rival(self, event: LagEvent, position: MirroredPosition) -> bool:
        return (
            event.query_id != position.query_id
            and not traits_of(event.origin).commits_offsets
            and any(topic.cluster == self._cluster for topic in event.topics)
            and self._plan.group(event.query, event.query_id, self._cluster) == position.group
        )

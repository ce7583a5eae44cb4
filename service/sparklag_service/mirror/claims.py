"""Whose a group is, where several queries come into question. Pure: it goes by the view."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from sparklag_schemas import LagEvent, Status
from sparklag_schemas.origins import traits_of
from sparklag_schemas.printable import first_few, printable
from sparklag_service.mirror.plan import MirrorPlan, Position
from sparklag_service.view.view import View

_OVER: Final[frozenset[Status]] = frozenset({"STOP", "FINISHED", "FAILED"})
_MAX_SHOWN: Final = 100
"""Characters of a name, or an id."""


class Claims:
    """Of the queries that read from one Kafka cluster, whichever instance measures them."""

    def __init__(self, plan: MirrorPlan, view: View, cluster: str, silent_s: float) -> None:
        self._plan = plan
        self._view = view
        self._cluster = cluster
        self._silent_s = silent_s

    def live(self, query_ids: Iterable[str], position: Position) -> list[str]:
        """Those of other queries that are known, and run as far as one can tell.

        One that nobody speaks of any more, while this instance is heard to speak of `position`, is
        dead: its embedded service died with it.
        """
        own = self._view.get(position.query_id)
        found = []
        for query_id in query_ids:
            entry = self._view.get(query_id)
            if entry is None or entry.event.status in _OVER:
                continue
            if own is None or own.received_s - entry.received_s <= self._silent_s:
                found.append(query_id)
        return found

    def is_over(self, query_id: str) -> bool:
        """Whether a query is known to run no more."""
        entry = self._view.get(query_id)
        return entry is not None and entry.event.status in _OVER

    def rivals(self, position: Position) -> list[str]:
        """The ids of other queries that are to be mirrored to the same group.

        They share its name. Other ways to one group (a query named like another's id) are found
        out by the mark of the first that commits.
        """
        if position.name is None:
            return []
        events = (entry.event for entry in self._view.find(position.name))
        return [event.query_id for event in events if self._is_rival(event, position)]

    def called(self, query_ids: Collection[str]) -> str:
        """Queries by id and name, for people: a few, since thousands may share a name."""
        return first_few(sorted(query_ids), " and ", show=self._called)

    def _called(self, query_id: str) -> str:
        entry = self._view.get(query_id)
        name = entry.event.query if entry is not None else None
        shown_id = printable(query_id, _MAX_SHOWN)
        return f"{printable(name, _MAX_SHOWN)} ({shown_id})" if name is not None else shown_id

    def _is_rival(self, event: LagEvent, position: Position) -> bool:
        return (
            event.query_id != position.query_id
            and not traits_of(event.origin).commits_offsets
            and any(topic.cluster == self._cluster for topic in event.topics)
            and self._plan.group(event.query, event.query_id, self._cluster) == position.group
        )

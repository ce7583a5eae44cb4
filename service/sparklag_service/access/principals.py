"""Principals: what the sender of a request may do, and the queries it may see. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from sparklag_schemas import LagEvent
from sparklag_schemas.settings import SCOPES, HttpGrantSettings
from sparklag_schemas.settings.clusters import NamePatterns
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.view.view import Entry, View


class Subject(NamedTuple):
    """What decides who may see a query."""

    query_id: str
    query: str | None
    clusters: frozenset[str | None]
    """Aliases of the clusters that it reads from; None: one that is not configured."""


def subject_of(event: LagEvent) -> Subject:
    clusters = frozenset(topic.cluster for topic in event.topics)
    return Subject(event.query_id, event.query, clusters or frozenset((event.cluster,)))


class Principal:
    """The holder of a token. `is_anonymous`: of none, where none is needed."""

    def __init__(
        self,
        name: str,
        grants: Sequence[HttpGrantSettings],
        *,
        expires_at: int | None = None,
        is_anonymous: bool = False,
    ) -> None:
        """`expires_at`: epoch milliseconds."""
        self.name = name
        self.scopes = frozenset(scope for grant in grants for scope in grant.scopes)
        self.is_anonymous = is_anonymous
        self.expires_at = expires_at
        self.is_revoked = False
        self.limits: Hashable = tuple((*grant.queries, None, *grant.clusters) for grant in grants)
        """Principals with equal limits see the same queries."""
        self.sees_all = any(not (grant.queries or grant.clusters) for grant in grants)
        self._grants = grants
        self._limits = [
            (NamePatterns(grant.queries, ()), frozenset(grant.clusters)) for grant in grants
        ]
        self._within: dict[str, Principal] = {}

    def has_ended(self) -> bool:
        """True: its token has expired, or was revoked."""
        return self.is_revoked or (self.expires_at is not None and epoch_ms() >= self.expires_at)

    def within(self, scope: str) -> Principal:
        """The principal with the limits of that scope."""
        if len(self._grants) == 1:
            return self
        if scope not in self._within:
            grants = [grant for grant in self._grants if scope in grant.scopes]
            self._within[scope] = Principal(self.name, grants, expires_at=self.expires_at)
        return self._within[scope]

    def sees(self, subject: Subject) -> bool:
        """True: it may see the query: by one of its grants, the query and every cluster that the
        query reads from."""
        return any(
            (not clusters or subject.clusters <= clusters)
            and patterns.select(subject.query, subject.query_id)
            for patterns, clusters in self._limits
        )


ANYONE: Final = Principal("anyone", [HttpGrantSettings(scopes=list(SCOPES))], is_anonymous=True)
"""Where no token is needed."""
NOBODY: Final = Principal("nobody", (), is_anonymous=True)
"""Without a valid token, where one is needed."""


def visible(view: View, principal: Principal) -> View:
    """The view with the queries that the principal may see. It must be used at once."""
    return view if principal.sees_all else _VisibleView(view, principal)


class _VisibleView(View):
    """Reads another view. The time of a response does not tell a hidden query from none."""

    def __init__(self, view: View, principal: Principal) -> None:
        self._view = view
        self._principal = principal
        self._any = list(islice(view, 1))

    def __iter__(self) -> Iterator[Entry]:
        return filter(self._sees, self._view)

    def listed(self, after: bytes | None = None) -> Iterator[tuple[bytes, LagEvent]]:
        sees = self._principal.sees
        return (item for item in self._view.listed(after) if sees(subject_of(item[1])))

    def get(self, query_id: str) -> Entry | None:
        entry = self._view.get(query_id)
        return next(iter(self._seen([] if entry is None else [entry])), None)

    def shown(self, entry: Entry) -> Entry:
        return self._view.shown(entry)

    def named(self, name: str) -> list[Entry]:
        return self._seen(self._view.named(name))

    def names(self) -> Iterator[str]:
        return filter(self.named, self._view.names())

    def with_prefix(self, prefix: str) -> list[Entry]:
        return self._seen(self._view.with_prefix(prefix))

    def _seen(self, entries: Sequence[Entry]) -> list[Entry]:
        seen = list(filter(self._sees, entries or self._any))
        return seen if entries else []

    def _sees(self, entry: Entry) -> bool:
        return self._principal.sees(subject_of(entry.event))

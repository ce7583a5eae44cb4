"""Principals: what the sender of a request may do, and the queries it may see. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from sparklag_schemas import LagEvent
from sparklag_schemas.settings import SCOPES
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
    """The subject of a query, from its event."""
    clusters = frozenset(topic.cluster for topic in event.topics)
    return Subject(event.query_id, event.query, clusters or frozenset((event.cluster,)))


class Principal:
    """The holder of a token. `is_anonymous`: of none, where none is needed."""

    def __init__(
        self,
        name: str,
        scopes: Sequence[str],
        queries: Sequence[str] = (),
        clusters: Sequence[str] = (),
        *,
        expires_at: int | None = None,
        is_anonymous: bool = False,
    ) -> None:
        """`queries`: regular expressions of whole names or ids, valid ones; `clusters`: aliases.
        Empty: all. `expires_at`: epoch milliseconds."""
        self.name = name
        self.scopes = frozenset(scopes)
        self.is_anonymous = is_anonymous
        self.expires_at = expires_at
        self.is_revoked = False
        self._clusters = frozenset(clusters)
        self.limits: Hashable = (tuple(queries), self._clusters)
        """Principals with equal limits see the same queries."""
        self.sees_all = bool(scopes) and not queries and not clusters
        self._patterns = NamePatterns(queries, ())

    def has_ended(self) -> bool:
        """True: its token has expired, or was revoked."""
        return self.is_revoked or (self.expires_at is not None and epoch_ms() >= self.expires_at)

    def within(self, scope: str) -> Principal:
        """The principal with the limits of that scope."""
        return self

    def sees(self, subject: Subject) -> bool:
        """True: it may see the query. A limited principal sees a query if it may see every cluster
        that the query reads from."""
        is_in_clusters = not self._clusters or subject.clusters <= self._clusters
        return is_in_clusters and self._patterns.select(subject.query, subject.query_id)


class GrantedPrincipal(Principal):
    """A principal with several grants, each with its own scopes and limits."""

    def __init__(self, name: str, grants: Sequence[Principal], expires_at: int | None) -> None:
        scopes = [scope for grant in grants for scope in grant.scopes]
        super().__init__(name, scopes, expires_at=expires_at)
        self.limits = tuple(grant.limits for grant in grants)
        self.sees_all = any(grant.sees_all for grant in grants)
        self._grants = grants

    def within(self, scope: str) -> Principal:
        grants = [grant for grant in self._grants if scope in grant.scopes]
        return GrantedPrincipal(self.name, grants, self.expires_at)

    def sees(self, subject: Subject) -> bool:
        return any(grant.sees(subject) for grant in self._grants)


ANYONE: Final = Principal("anyone", SCOPES, is_anonymous=True)
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

    def with_prefix(self, prefix: str) -> list[Entry]:
        return self._seen(self._view.with_prefix(prefix))

    def _seen(self, entries: Sequence[Entry]) -> list[Entry]:
        seen = list(filter(self._sees, entries or self._any))
        return seen if entries else []

    def _sees(self, entry: Entry) -> bool:
        return self._principal.sees(subject_of(entry.event))

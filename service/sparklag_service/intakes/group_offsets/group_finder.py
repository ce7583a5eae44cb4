"""Finds a cluster's consumer groups: every broker lists those that it coordinates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sparklag_kafka.brokers.group_offsets import coordinators
from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.errors import KAFKA_FAILURES, broker_error_text
from sparklag_kafka.protocol.groups import ListGroupsRequest
from sparklag_schemas import GroupSettings
from sparklag_schemas.bounds import MAX_NAME
from sparklag_service.intakes.group_offsets.failures import Failures, error_text
from sparklag_service.intakes.group_offsets.group_listing import GroupListing
from sparklag_service.intakes.group_offsets.group_patterns import GroupPatterns
from sparklag_service.intakes.group_offsets.pauses import with_pauses

_MAX_NAME: Final = MAX_NAME - 300
"""A query id has the cluster's alias before it."""


class GroupFinder:
    """Keeps `listing` as the brokers say. `remembered` groups that none lists are looked for too;
    `on_news` is called when a group is new, elsewhere, or missing."""

    def __init__(
        self,
        settings: GroupSettings,
        brokers: BrokerPool,
        failures: Failures,
        remembered: Callable[[], Iterable[str]],
        on_news: Callable[[], None],
    ) -> None:
        self.listing = GroupListing()
        self._brokers = brokers
        self._failures = failures
        self._remembered = remembered
        self._on_news = on_news
        self._patterns = GroupPatterns(settings)
        self._lists: dict[int, tuple[bytes, list[str]]] = {}
        self._nodes: set[int] = set()

    async def find(self) -> bool:
        """Ask every broker for its groups; False where none answers."""
        if await self._brokers.refresh() is None:
            return False
        nodes = sorted(self._brokers.brokers)
        for node in self._nodes - set(nodes):
            self._lists.pop(node, None)
            self._failures.drop(self._list(node), self._names(node), self._failures.broker(node))
        self._nodes = set(nodes)
        self.listing.begin_round()
        # What one says counts as soon as it answers: one that hangs keeps nobody waiting.
        if all(await asyncio.gather(*(self._list_groups_of(node) for node in nodes))):
            remembered = filter(self._patterns.match, self._remembered())
            missing = self.listing.end_round(remembered)
            if missing:
                await self._find_coordinators(missing)
                self._on_news()
        return True

    async def _list_groups_of(self, node: int) -> bool:
        """Whether that broker has said all of its groups."""
        connection = self._brokers.connection(node)
        if connection is None:
            return False
        what = self._list(node)
        try:
            answer = await connection.send(ListGroupsRequest())
            error_code, listed = answer.read()
            raw, groups = self._lists.get(node, (b"", []))
            if raw != answer.data[4:]:  # behind the throttle time
                groups = [g async for g in with_pauses(listed) if self._patterns.match(g)]
        except KAFKA_FAILURES as error:
            why = broker_error_text(node, error, self._brokers.timeout_s)
            self._failures.begin(what, f"consumer groups may be missing: {why}")
            return False
        if error_code:
            why = f"broker {node} does not list all of its groups: {error_text(error_code)}"
            self._failures.begin(what, why)
        else:
            self._failures.end(what)
            self._lists[node] = (answer.data[4:], groups)
        groups = self._named_within_bounds(node, groups)
        async for group in with_pauses(groups):
            if self.listing.listed(group, node):
                self._on_news()
        return not error_code

    async def _find_coordinators(self, groups: Sequence[str]) -> None:
        """Who is to be asked about groups that no broker lists."""
        refused = {}
        async for found in coordinators(self._brokers, groups):
            self.listing.found(found.group, None if found.error_code else found.node)
            if found.error_code:
                refused[found.group] = error_text(found.error_code)
        self._failures.begin_groups(refused)

    def _named_within_bounds(self, node: int, groups: list[str]) -> list[str]:
        what = self._names(node)
        within = [group for group in groups if len(group) <= _MAX_NAME]
        if len(within) < len(groups):
            long = len(groups) - len(within)
            self._failures.begin(
                what,
                f"{long} consumer groups with names of over {_MAX_NAME} characters are left out",
            )
        else:
            self._failures.end(what)
        return within

    def _list(self, node: int) -> str:
        return f"{self._failures.broker(node)}, its list"

    def _names(self, node: int) -> str:
        return f"{self._list(node)} of names"

"""Reads what a cluster's consumer groups have committed: each broker, and each group, by itself.

One request to each broker has all that the groups which it coordinates have committed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from sparklag_kafka.brokers.connection import BrokerConnection
from sparklag_kafka.brokers.group_offsets import GROUPS_AT_ONCE, fetch_offsets
from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.errors import KAFKA_FAILURES, broker_error_text
from sparklag_kafka.protocol.offset_fetch import GroupAnswer
from sparklag_schemas import ClusterAccess, GroupSettings
from sparklag_schemas.runtime.chunks import by_count
from sparklag_schemas.runtime.clock import epoch_ms
from sparklag_schemas.runtime.tasks import end, keep_on, run_together, until_set
from sparklag_service.intakes.group_offsets.failures import (
    NO_COORDINATOR,
    NO_SUCH_GROUP,
    NOT_COORDINATOR,
    Failures,
    error_text,
)
from sparklag_service.intakes.group_offsets.group_finder import GroupFinder
from sparklag_service.intakes.group_offsets.pauses import with_pauses

_log = logging.getLogger(__name__)

_AT_ONCE_S: Final = 1.0
"""How often groups are looked for because one is not where it was."""
_AGAIN_S: Final = (1.0, 2.0, 5.0, 10.0)
"""When groups are looked for again that were not all found; the last goes on."""
_CANCEL_AGAIN_S: Final = 1.0


class GroupTaker(Protocol):
    """Who wants to know."""

    def wants(self, group: str) -> bool:
        """Whether what this group has committed is to be read. Asked every time."""

    def remembered(self) -> Iterable[str]:
        """Groups that were there once: where they are gone, that is told."""

    def read(self, answer: GroupAnswer, asked_at_ms: int) -> None:
        """What a group had committed, or more, when it was asked for. It is there, without error;
        the same object as the last time means that nothing has changed."""

    def gone(self, group: str, asked_at_ms: int) -> None:
        """It was deleted, or all that it had committed has expired."""


class GroupReader:
    """Tells `taker` while `run` runs. Create it on its loop. Raises SettingsError."""

    def __init__(
        self,
        alias: str,
        access: ClusterAccess,
        settings: GroupSettings,
        taker: GroupTaker,
    ) -> None:
        self._settings = settings
        self._taker = taker
        self._brokers = BrokerPool(access)
        self._failures = Failures(alias)
        self._find_now = asyncio.Event()
        self._read_now = asyncio.Event()
        self._finder = GroupFinder(
            settings, self._brokers, self._failures, taker.remembered, self._read_now.set
        )
        self._listing = self._finder.listing
        self._known: dict[str, GroupAnswer] = {}
        self._reading: dict[int, asyncio.Task[None]] = {}
        self._failed_finds = 0

    @property
    def failing(self) -> Mapping[str, str]:
        """What cannot be read, and why, in one line each."""
        return self._failures.reasons

    async def run(self) -> None:
        """Read until cancelled."""
        try:
            await run_together(
                keep_on(self._find_due, self._failures.cluster, _AT_ONCE_S),
                keep_on(self._read_due, self._failures.cluster, _AT_ONCE_S),
                patience_s=_CANCEL_AGAIN_S,
            )
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """End what is under way and close the connections; bounded in time."""
        await end(*self._reading.values(), patience_s=_CANCEL_AGAIN_S)
        await self._brokers.aclose()

    async def find_groups(self) -> bool:
        """Look for groups once, now; whether any broker answered."""
        if await self._finder.find():
            self._failures.end(self._failures.cluster)
            return True
        why = f"consumer groups cannot be read, {await self._brokers.explain_unreachable()}"
        self._failures.begin(self._failures.cluster, why)
        return False

    async def read_all(self) -> None:
        """Read every group that is known once, now; return when no broker is waited for."""
        await self._start_reads()
        if self._reading:
            await asyncio.wait(self._reading.values())

    async def _find_due(self) -> None:
        self._find_now.clear()
        next_s = self._settings.find_interval_s
        # A coordinator that is loading lists no groups, nor does one that hangs.
        if await self.find_groups() and self._listing.is_complete:
            self._failed_finds = 0
            # Not sooner, however often a group is not where it was.
            await asyncio.sleep(min(_AT_ONCE_S, next_s))
            await until_set(self._find_now, next_s - _AT_ONCE_S)
        else:
            again_s = _AGAIN_S[min(self._failed_finds, len(_AGAIN_S) - 1)]
            self._failed_finds += 1
            await asyncio.sleep(min(again_s, next_s))

    async def _read_due(self) -> None:
        due_s = time.monotonic() + self._settings.interval_s
        self._read_now.clear()
        await self._start_reads()
        await until_set(self._read_now, due_s - time.monotonic())

    async def _start_reads(self) -> None:
        """Ask each broker that owes no answer."""
        by_node: dict[int, list[str]] = {}
        async for group in with_pauses(list(self._listing.places)):
            place = self._listing.places.get(group)
            if place is None:
                continue
            if not self._taker.wants(group):
                self._forget(group, for_good=place.unlisted)
            elif place.node is not None:
                by_node.setdefault(place.node, []).append(group)
        for node, groups in by_node.items():
            if node not in self._reading:
                task = asyncio.create_task(self._read_from(node, groups))
                self._reading[node] = task
                task.add_done_callback(partial(self._ended, node))

    def _ended(self, node: int, task: asyncio.Task[None]) -> None:
        del self._reading[node]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("reading groups of broker %s was given up", node, exc_info=error)

    async def _read_from(self, node: int, groups: Sequence[str]) -> None:
        connection = self._brokers.connection(node)
        if connection is None:
            why = f"its coordinator, broker {node}, has left the cluster"
            self._failures.begin_groups(dict.fromkeys(groups, why))
            self._find_now.set()
            return
        what = self._failures.broker(node)
        try:
            for some in by_count(groups, GROUPS_AT_ONCE):
                await self._read_groups(connection, some)
        except KAFKA_FAILURES as error:
            if self._brokers.connection(node) is connection:  # else it has left meanwhile
                why = broker_error_text(node, error, self._brokers.timeout_s)
                self._failures.begin(what, f"{why}; consumer groups not read: {len(groups)}")
            self._find_now.set()
        else:
            self._failures.end(what)

    async def _read_groups(self, connection: BrokerConnection, groups: Sequence[str]) -> None:
        await connection.connect()
        asked_at_ms = epoch_ms()
        refused: dict[str, str] = {}
        for answer in await fetch_offsets(connection, groups):
            for found in answer.read(self._known):
                if found is None:
                    await asyncio.sleep(0)
                    continue
                why = self._take(found, asked_at_ms)
                if why is not None:
                    refused[found.group] = why
        self._failures.begin_groups(refused)

    def _take(self, found: GroupAnswer, asked_at_ms: int) -> str | None:
        """Tell what was found; what of it is not known, and why."""
        group = found.group
        if group not in self._listing.places or not self._taker.wants(group):
            return None
        if found.error_code not in (0, NO_SUCH_GROUP):
            if found.error_code in (NO_COORDINATOR, NOT_COORDINATOR):
                self._listing.moved(group)
                self._find_now.set()
            return error_text(found.error_code)
        failed = [code for topic in found.topics.values() for code in topic.failed.values()]
        if not failed:
            self._failures.end(self._failures.group(group))
        if found.topics:
            self._listing.has_offsets(group)
        elif not self._is_there(group, asked_at_ms):
            return None
        self._known[group] = found
        self._taker.read(found, asked_at_ms)
        if failed:
            return f"{len(failed)} of its offsets are not known: {error_text(failed[0])}"
        return None

    def _is_there(self, group: str, asked_at_ms: int) -> bool:
        """Whether a group without offsets is known to be there."""
        is_there = self._listing.has_none(group)
        if is_there is None and group in self._known:
            self._find_now.set()
        elif is_there is False:
            self._forget(group, for_good=True)
            self._taker.gone(group, asked_at_ms)
        return is_there is True

    def _forget(self, group: str, *, for_good: bool) -> None:
        self._known.pop(group, None)
        self._failures.drop(self._failures.group(group))
        if for_good:
            self._listing.forget(group)

"""Records of `consumer-lag`, the newest of each key, dispatched to the followers of the view."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple, Protocol

from aiokafka.structs import ConsumerRecord
from msgspec import Struct

from sparklag_kafka.clients.contract_records import ContractRecords, Refusals
from sparklag_schemas import LagEvent, Settings
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.messages.bounds import EpochMs, Name
from sparklag_schemas.messages.topics import key_of
from sparklag_service.counters import Counters


class _Version(Struct, frozen=True, kw_only=True, gc=False):
    """The fields of a lag event that decide which is newer: the others are not decoded."""

    query_id: Name
    observed_at: EpochMs
    measured_at: EpochMs


class NewestRecords:
    """Leaves out records that later ones replace, of which it decodes the version alone."""

    def __init__(self, settings: Settings, formats: MessageFormats, refusals: Refusals) -> None:
        self._records = ContractRecords(
            _Version, settings.lag_topic, settings, formats, refusals, written_as=LagEvent
        )

    async def of(self, records: Iterable[ConsumerRecord]) -> list[ConsumerRecord]:
        """Of a partition's records, in their order: the event of the highest version of each query
        between two of its tombstones, and the tombstones. Events that are refused are left out, but
        not those under another key than their query's.

        Raises RegistryError.
        """
        kept: list[ConsumerRecord] = []
        newest: dict[bytes, tuple[tuple[int, int], ConsumerRecord]] = {}
        async for chunk in self._records.chunks(records):
            for record in chunk:
                if record.value is None:
                    if record.key in newest:
                        kept.append(newest.pop(record.key)[1])
                    kept.append(record)
                    continue
                event = self._records.decoded(record)
                if event is None:
                    continue
                key, version = key_of(event.query_id), (event.observed_at, event.measured_at)
                if key != record.key:
                    kept.append(record)
                elif key not in newest or version >= newest[key][0]:
                    newest[key] = version, record
            await asyncio.sleep(0)
        kept.extend(record for _, record in newest.values())
        return sorted(kept, key=attrgetter("offset"))


_log = logging.getLogger(__name__)


class Arrival(NamedTuple):
    """A record of `consumer-lag`."""

    query_id: str
    partition: int
    offset: int
    at_ms: int
    """The record's own time, epoch milliseconds."""
    event: LagEvent | None
    """None: a tombstone."""
    document: bytes
    """The event's JSON; empty in a tombstone."""


class Follower(Protocol):
    """Called on the view's task: it must return at once."""

    def began(self, restarted: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Reading begins; the log ends at `ends`: partition to offset. `restarted`: where it begins
        in the partitions in which it does not go on after the last record that was read: there was
        none, or something is left out, or another topic has the name now."""

    def arrived(self, arrival: Arrival) -> None:
        """A record that the view has taken; outdated events are left out."""


class Feed:
    """Dispatches in order, synchronously, each record once. A follower that fails is counted, and
    logged once."""

    def __init__(self, counters: Counters, *followers: Follower) -> None:
        self._counters = counters
        self._followers = followers
        self._last: dict[int, int] = {}
        """By partition: the offset that was read last."""

    def follow(self, follower: Follower) -> None:
        """Dispatch to it too."""
        self._followers = (*self._followers, follower)

    def begin(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Reading begins at `starts`, at the start and again after each failure, perhaps from an
        earlier offset; the log ends at `ends`: partition to offset."""
        restarted = {}
        for partition, start in starts.items():
            last = self._last.get(partition)
            if last is None or start > last + 1 or ends.get(partition, 0) <= last:
                restarted[partition] = start
                self._last[partition] = start - 1
        for follower in self._followers:
            try:
                follower.began(restarted, ends)
            except Exception:  # the view goes on
                self._failed(follower)

    def dispatch(self, arrival: Arrival) -> None:
        """Hand a record on that the view has taken, unless it was read before, or is from before
        the start."""
        if arrival.offset <= self._last.get(arrival.partition, -1):
            return
        self._last[arrival.partition] = arrival.offset
        for follower in self._followers:
            try:
                follower.arrived(arrival)
            except Exception:  # the view goes on
                self._failed(follower)

    def _failed(self, follower: Follower) -> None:
        """Count it; the view goes on."""
        self._counters.followers_failed += 1
        if self._counters.followers_failed == 1:
            _log.exception("%s failed with an event; the next are not logged", type(follower))

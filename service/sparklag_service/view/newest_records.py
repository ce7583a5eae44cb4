"""The newest of many records of `consumer-lag`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from operator import attrgetter

from aiokafka.structs import ConsumerRecord
from msgspec import Struct

from sparklag_kafka.clients.contract_records import ContractRecords, Refusals
from sparklag_schemas import LagEvent, Settings
from sparklag_schemas.bounds import EpochMs, Name
from sparklag_schemas.formats import MessageFormats
from sparklag_schemas.topics import key_of


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

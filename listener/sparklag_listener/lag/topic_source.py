"""Reads lag from `consumer-lag`: the newest events of the wanted queries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from aiokafka.structs import ConsumerRecord, TopicPartition

from sparklag_kafka.access import explain_error, quiet_client_logs
from sparklag_kafka.brokers.logs import read_partitions
from sparklag_kafka.clients.consumer import ContractConsumer, RecentRecords, read_to
from sparklag_kafka.clients.contract_records import ContractRecords, safe
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_listener.errors import LagUnavailable
from sparklag_listener.lag import await_within, the_one
from sparklag_schemas import LagEvent, RegistryError, ResolvedSettings
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.errors import WrongPlace
from sparklag_schemas.messages.query_names import find_query, ids_with_prefix
from sparklag_schemas.text.locations import shown_url
from sparklag_schemas.text.printable import printable

_log = logging.getLogger("sparklag")


class TopicSource:
    """A LagSource. A call connects, reads the last minute before the log end, and disconnects."""

    def __init__(self, settings: ResolvedSettings) -> None:
        quiet_client_logs()
        self._settings = settings
        self._refusals = _LoggedOnce()
        self._shown = f"topic {settings.lag_topic} on {shown_url(settings.bootstrap_servers)}"

    def find(self, query: str, timeout_s: float) -> LagEvent:

        def may_be_meant(event: LagEvent) -> bool:
            is_named = query in (event.query, event.query_id)
            return is_named or bool(ids_with_prefix(query, [event.query_id]))

        events = await_within(timeout_s, self._read(may_be_meant), self._shown)
        return the_one(query, find_query(query, events))

    def newest(self, query_ids: Collection[str], timeout_s: float) -> list[LagEvent]:
        if not query_ids:
            return []
        events = self._read(lambda event: True, frozenset(query_ids))
        return list(await_within(timeout_s, events, self._shown).values())

    async def _read(
        self, is_wanted: Callable[[LagEvent], bool], query_ids: Collection[str] | None = None
    ) -> dict[str, LagEvent]:
        """The wanted events by query id, decoded only where `query_ids` has the id or is None."""
        settings, topic = self._settings, self._settings.lag_topic
        newest: dict[str, LagEvent] = {}
        formats = MessageFormats(settings)
        records = ContractRecords(LagEvent, topic, settings, formats, self._refusals)
        try:
            numbers = (await read_partitions([topic], settings.access)).get(topic)
            if not numbers:
                raise LagUnavailable(
                    f"{self._shown} does not exist, or this user may not see it: a service writes"
                    " it (`sparklag serve`)"
                )
            async with ContractConsumer(settings, records.refuse_batch) as consumer:
                partitions = [TopicPartition(topic, number) for number in numbers]
                consumer.assign(partitions)
                ends = await consumer.end_offsets(partitions)
                filled = await RecentRecords(consumer, settings.heartbeat_s).seek(ends)
                async for batch in read_to(consumer, filled):
                    wanted = [
                        record
                        for record in batch
                        if (query_id := records.query_id(record)) is not None
                        and (query_ids is None or query_id in query_ids)
                    ]
                    async for chunk in records.chunks(wanted):
                        for record in chunk:
                            self._take(record, records, newest, is_wanted)
                        await asyncio.sleep(0)
        except (*KAFKA_FAILURES, RegistryError) as error:
            cause = await explain_error(error, settings.access)
            raise LagUnavailable(f"{self._shown} cannot be read: {cause}") from error
        return newest

    def _take(
        self,
        record: ConsumerRecord,
        records: ContractRecords[LagEvent],
        newest: dict[str, LagEvent],
        is_wanted: Callable[[LagEvent], bool],
    ) -> None:
        query_id = records.query_id(record)
        if record.value is None:
            if query_id in newest and records.is_genuine(record):
                del newest[query_id]
            return
        event = records.decoded(record)
        if event is None:
            return
        if event.query_id != query_id:
            records.refuse(record, WrongPlace("its key is not its query's id"))
            return
        current = newest.get(query_id)
        if current is not None and event.version < current.version:
            return
        if is_wanted(event):
            newest[query_id] = safe(event, record)
        else:
            newest.pop(query_id, None)
        if len(newest) > self._settings.limits.queries:
            raise LagUnavailable(
                f"{self._shown} has more than {self._settings.limits.queries:,} queries of that"
                " name (limits.queries): request one by its id"
            )


class _LoggedOnce:
    """Refusals that logs the first message of each kind. The service counts all messages."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()

    def add(self, topic: str, kind: str, what: str, query_id: str | None) -> None:
        if kind not in self._kinds:
            self._kinds.add(kind)
            _log.warning("sparklag: skipped a %s", printable(what))

    def known_name(self, query_id: str) -> None:
        """None: see ContractRecords."""

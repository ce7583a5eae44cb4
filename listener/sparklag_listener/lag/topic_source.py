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
from sparklag_listener.lag.source import await_within, the_one
from sparklag_schemas import LagEvent, RegistryError, ResolvedSettings
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.errors import WrongPlace
from sparklag_schemas.messages.query_names import find_query, ids_with_prefix
from sparklag_schemas.text.locations import shown_url
from sparklag_schemas.text.printable import printable

_log = logging.getLogger("sparklag")


class TopicSource:
    """Each call connects, reads the last minute before the log end, and disconnects."""

    def __init__(self, settings: ResolvedSettings) -> None:
        quiet_client_logs()
        self._settings = settings
        self._refusals = _LoggedOnce()
        self._shown = f"topic {settings.lag_topic} on {shown_url(settings.bootstrap_servers)}"

    def find(self, query: str, timeout_s: float) -> LagEvent:
        """See LagSource."""

        def may_be_meant(event: LagEvent) -> bool:
            return event.query == query or bool(
                event.query_id == query or ids_with_prefix(query, [event.query_id])
            )

        events = self._within(timeout_s, lambda query_id: True, may_be_meant)
        return the_one(query, find_query(query, events))

    def newest(self, query_ids: Collection[str], timeout_s: float) -> list[LagEvent]:
        """See LagSource."""
        wanted = frozenset(query_ids)
        if not wanted:
            return []
        return list(self._within(timeout_s, wanted.__contains__, lambda event: True).values())

    def _within(
        self,
        timeout_s: float,
        is_read: Callable[[str], bool],
        is_wanted: Callable[[LagEvent], bool],
    ) -> dict[str, LagEvent]:
        return await_within(timeout_s, self._read(is_read, is_wanted), self._shown)

    async def _read(
        self, is_read: Callable[[str], bool], is_wanted: Callable[[LagEvent], bool]
    ) -> dict[str, LagEvent]:
        """By query id: of those that `is_read` takes by their id, those that `is_wanted` takes."""
        settings = self._settings
        newest: dict[str, LagEvent] = {}
        records = ContractRecords(
            LagEvent, settings.lag_topic, settings, MessageFormats(settings), self._refusals
        )
        consumer = ContractConsumer(settings, records.refuse_batch)
        try:
            topic = settings.lag_topic
            numbers = (await read_partitions([topic], settings.access)).get(topic)
            if not numbers:
                raise LagUnavailable(
                    f"{self._shown} does not exist, or this user may not see it: a service writes"
                    " it (`sparklag serve`)"
                )
            await consumer.start()
            partitions = [TopicPartition(topic, number) for number in numbers]
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            filled = await RecentRecords(consumer, settings.heartbeat_s).seek(ends)
            async for batch in read_to(consumer, filled):
                wanted = [
                    record
                    for record in batch
                    if (query_id := records.query_id(record)) is not None and is_read(query_id)
                ]
                async for chunk in records.chunks(wanted):
                    for record in chunk:
                        self._take(record, records, newest, is_wanted)
                    await asyncio.sleep(0)
        except (*KAFKA_FAILURES, RegistryError) as error:
            cause = await explain_error(error, settings.access)
            raise LagUnavailable(f"{self._shown} cannot be read: {cause}") from error
        finally:
            await consumer.stop()
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
    """Refused messages: the first of each kind is logged. The service counts them all."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()

    def add(self, topic: str, kind: str, what: str, query_id: str | None) -> None:
        """See Refusals."""
        if kind not in self._kinds:
            self._kinds.add(kind)
            _log.warning("sparklag: skipped a %s", printable(what))

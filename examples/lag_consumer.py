"""Act on lag events: a member of a consumer group on the topic `consumer-lag`.

Every event is worked off at least once, and those of a query in their order, whatever members
come, leave or die. `handle` is the work: put yours there. Start it as often as you like; the group
shares the topic's partitions, and with them the queries.

pip install sparklag       # 'sparklag[avro]' where messages may be in Avro: with registry.url set
python lag_consumer.py --group lag-reactions       # settings as the service has: sparklag.toml, …
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Collection, Iterable

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord, TopicPartition

from sparklag_kafka.clients.connection import client_options
from sparklag_schemas import (
    ContractError,
    LagEvent,
    MessageFormats,
    RegistryError,
    Settings,
    load_settings,
)

# Killed, or cut off: after so long without a heartbeat the others have its partitions.
SESSION_TIMEOUT_MS = 10_000
HEARTBEAT_MS = 1_000  # also how soon a member learns that the group shares its partitions anew

# How long the group waits for this member to hand its partitions over: one event's work and a
# commit, and room to spare. All of the group stands still for so long if it does not come.
REBALANCE_TIMEOUT_MS = 30_000

# How long it may be between two polls: the work on MAX_RECORDS events. Heartbeats go on while
# work hangs for ever; by this the group notices all the same. In Java it is the rebalance time-out
# too, as only a poll joins again there; aiokafka does so by itself, and has two.
MAX_POLL_INTERVAL_MS = 120_000

POLL_MS = 500
MAX_RECORDS = 100
FETCH_BYTES = 16 * 1024 * 1024  # in one answer of a broker, however much there is
RETRY_S = 2.0

log = logging.getLogger("lag_consumer")


async def handle(event: LagEvent, before: LagEvent | None) -> None:
    """The work. `before` is the query's event before this one; None: the first that is seen here.

    After a crash the same event comes again: what must not be done twice keeps `event_id` beside
    its result. Heartbeats run on the same loop: what blocks belongs in a thread.
    """
    if before is None or before.status != event.status:
        was = "new here" if before is None else before.status
        why = f" ({event.reason})" if event.reason else ""
        print(f"{event.display_name}: {was} -> {event.status}{why}", flush=True)


async def forget(query_id: str) -> None:
    """The query is no more: a day after it was last heard of."""
    print(f"{query_id}: forgotten", flush=True)


class LagMember(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Works off the events of the partitions that the group gives it."""

    def __init__(
        self,
        settings: Settings,
        group: str,
        handle: Callable[[LagEvent, LagEvent | None], Awaitable[None]] = handle,
        forget: Callable[[str], Awaitable[None]] = forget,
    ) -> None:
        self._handle = handle
        self._forget = forget
        self._topic = settings.lag_topic
        self._reader = MessageFormats(settings).reader(LagEvent)
        self._consumer = AIOKafkaConsumer(
            **client_options(settings.resolved().access),
            group_id=group,
            enable_auto_commit=False,  # it would commit what is polled, not what is done
            # With "latest" a partition that nobody has committed yet would lose what comes between
            # two members. The first start reads a day.
            auto_offset_reset="earliest",
            fetch_max_bytes=FETCH_BYTES,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
        )
        self._at_work = asyncio.Lock()
        self._is_handing_over = self._is_stopping = False
        self._newest: dict[TopicPartition, dict[str, LagEvent]] = {}
        self._done: dict[TopicPartition, int] = {}
        """The next offset of each partition, where it is not committed yet."""

    async def run(self) -> None:
        """Until SIGTERM or Ctrl-C; then leave the group, so that others go on at once."""
        running = asyncio.current_task()
        assert running is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop, running)
        try:
            self._consumer.subscribe([self._topic], listener=self)
            await self._consumer.start()
            while not self._is_stopping:
                polled = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=MAX_RECORDS)
                async with self._at_work:
                    await self._work_off([r for records in polled.values() for r in records])
                    await self._commit()
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise
        finally:
            await self._consumer.stop()

    def _stop(self, running: asyncio.Task[None]) -> None:
        self._is_stopping = True
        if not self._at_work.locked():
            running.cancel()  # it waits for events, maybe for as long as Kafka is away

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Whoever has them next goes on where this member ends."""
        self._is_handing_over = True
        async with self._at_work:  # the event in hand is finished first, and no other begun
            await self._commit()
        self._newest.clear()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Start clean, from what is committed: others may have had them in between."""
        self._newest = {partition: {} for partition in assigned}
        self._done = {}
        self._is_handing_over = False

    async def _work_off(self, records: list[ConsumerRecord]) -> None:
        await self._learn([record.value for record in records])
        for record in records:
            # What is left is polled again from what is committed, here or elsewhere.
            if self._is_handing_over or self._is_stopping:
                return
            partition = TopicPartition(record.topic, record.partition)
            try:
                await self._work_on(record, self._newest[partition])
            except ContractError as error:
                # Passed over: it would be as unreadable the next time.
                place = f"{record.topic}[{record.partition}]@{record.offset}"
                log.warning("skipped %s: %s", place, error)
            self._done[partition] = record.offset + 1

    async def _work_on(self, record: ConsumerRecord, newest: dict[str, LagEvent]) -> None:
        if record.value is None:
            query_id = (record.key or b"").decode(errors="replace")
            newest.pop(query_id, None)
            await self._forget(query_id)
            return
        event = self._reader.decode(record.value)
        before = newest.get(event.query_id)
        # The same event once more has the same version; one that comes late has a lower one.
        if before is None or event.version > before.version:
            await self._handle(event, before)
            newest[event.query_id] = event

    async def _learn(self, values: Collection[bytes | None]) -> None:
        """Fetch the Avro schemas they are written in. JSON has none."""
        while not (self._is_handing_over or self._is_stopping):
            try:
                await self._reader.learn(values)
                break
            except RegistryError as error:
                log.warning("%s; trying again", error)
                await asyncio.sleep(RETRY_S)

    async def _commit(self) -> None:
        if not self._done:
            return
        try:
            await self._consumer.commit(self._done)
        except KafkaError as error:
            # The next commit says it again, or whoever has the partition next does the work again.
            log.warning("not committed: %s", type(error).__name__)
        else:
            self._done = {}


async def main() -> None:
    parser = argparse.ArgumentParser(description="Act on lag events, as a member of a group.")
    parser.add_argument("--group", default="lag-reactions")
    parser.add_argument("--bootstrap-servers", help="host:port[,host:port...]")
    parser.add_argument("--lag-topic")
    arguments = vars(parser.parse_args())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    group = arguments.pop("group")
    await LagMember(load_settings(overrides=arguments), group).run()


if __name__ == "__main__":
    asyncio.run(main())

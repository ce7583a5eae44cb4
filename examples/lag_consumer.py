"""Act on lag events: a member of a consumer group on the topic `consumer-lag`.

Every event is processed at least once, and those of a query in order, whatever members join, leave
or die. Replace `handle` by your own code. Start it as often as you like; the group shares the
topic's partitions, and with them the queries.

pip install sparklag       # 'sparklag[avro]' where messages may be in Avro: with registry.url set
python lag_consumer.py --group lag-reactions       # settings as the service has: sparklag.toml, …
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord, TopicPartition

from sparklag_kafka.access import client_options
from sparklag_schemas import (
    ContractError,
    LagEvent,
    MessageFormats,
    RegistryError,
    Settings,
    load_settings,
)
from sparklag_schemas.runtime.tasks import call_on_signals

# Of a member that was killed or cut off: then the others get its partitions.
SESSION_TIMEOUT_MS = 10_000
HEARTBEAT_MS = 1_000  # also how soon a member learns of a rebalance

# How long a rebalance waits for this member: enough to process an event and to commit, with a
# margin. If the member does not join, the whole group is paused for that long.
REBALANCE_TIMEOUT_MS = 30_000

# The longest time between two polls: enough to process MAX_RECORDS events. Heartbeats continue
# while `handle` hangs; this limit still lets the group notice. In Java it is the rebalance timeout
# too, because only a poll rejoins there; aiokafka rejoins by itself, and has two settings.
MAX_POLL_INTERVAL_MS = 120_000

POLL_MS = 500
MAX_RECORDS = 100
FETCH_BYTES = 16 * 1024 * 1024  # the most in one fetch response
RETRY_S = 2.0

log = logging.getLogger("lag_consumer")


async def handle(event: LagEvent, before: LagEvent | None) -> None:
    """Your code. `before` is the query's previous event; None: the first on this member.

    After a crash the same event comes again: where that matters, store `event_id` with the result.
    Heartbeats run on the same loop: run blocking calls in a thread.
    """
    if before is None or before.status != event.status:
        was = "new here" if before is None else before.status
        why = f" ({event.reason})" if event.reason else ""
        print(f"{event.display_name}: {was} -> {event.status}{why}", flush=True)


async def forget(query_id: str) -> None:
    """A tombstone: the query was forgotten, a day after its last event."""
    print(f"{query_id}: forgotten", flush=True)


class LagMember(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Processes the events of its assigned partitions."""

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
            enable_auto_commit=False,  # it would commit what is polled, not what is processed
            # With "latest", a partition without a commit would lose the events that come while no
            # member owns it. The first start reads a day.
            auto_offset_reset="earliest",
            fetch_max_bytes=FETCH_BYTES,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
        )
        self._processing = asyncio.Lock()
        self._is_revoked = self._is_stopping = False
        self._newest: dict[TopicPartition, dict[str, LagEvent]] = {}
        self._done: dict[TopicPartition, int] = {}
        """The next offset of each partition, where it is not committed yet."""

    async def run(self) -> None:
        """Until SIGTERM or Ctrl-C; then leave the group, so that others take over at once."""
        running = asyncio.current_task()
        assert running is not None
        call_on_signals(lambda _: self._stop(running))
        try:
            self._consumer.subscribe([self._topic], listener=self)
            await self._consumer.start()
            while not self._is_stopping:
                polled = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=MAX_RECORDS)
                async with self._processing:
                    await self._process_all([r for records in polled.values() for r in records])
                    await self._commit()
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise
        finally:
            await self._consumer.stop()

    def _stop(self, running: asyncio.Task[None]) -> None:
        self._is_stopping = True
        if not self._processing.locked():
            running.cancel()  # it waits for events, possibly for as long as Kafka is away

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Commit, so that the next owner continues here."""
        self._is_revoked = True
        async with self._processing:  # finishes the current event, and starts no other
            await self._commit()
        self._newest.clear()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Start from the committed offsets: others may have owned them in between."""
        self._newest = {partition: {} for partition in assigned}
        self._done = {}
        self._is_revoked = False

    async def _process_all(self, records: list[ConsumerRecord]) -> None:
        await self._learn([record.value for record in records])
        for record in records:
            # The rest is polled again from the committed offset, here or elsewhere.
            if self._is_revoked or self._is_stopping:
                return
            partition = TopicPartition(record.topic, record.partition)
            try:
                await self._process(record, self._newest[partition])
            except ContractError as error:
                # Skipped: it would be unreadable the next time too.
                log.warning(
                    "skipped %s[%d]@%d: %s", record.topic, record.partition, record.offset, error
                )
            self._done[partition] = record.offset + 1

    async def _process(self, record: ConsumerRecord, newest: dict[str, LagEvent]) -> None:
        if record.value is None:
            query_id = (record.key or b"").decode(errors="replace")
            newest.pop(query_id, None)
            await self._forget(query_id)
            return
        event = self._reader.decode(record.value)
        before = newest.get(event.query_id)
        # A duplicate has the same version, a late event a lower one.
        if before is None or event.version > before.version:
            await self._handle(event, before)
            newest[event.query_id] = event

    async def _learn(self, values: Collection[bytes | None]) -> None:
        """Fetch the Avro schemas of the values. JSON has none."""
        while not (self._is_revoked or self._is_stopping):
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
            # The next commit includes it, or the partition's next owner processes it again.
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

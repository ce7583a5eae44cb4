"""What drivers report now: the end of `processed-offsets`."""

from __future__ import annotations

import time
from typing import Final

from sparklag_kafka.clients.consumer import ContractConsumer, read_to
from sparklag_kafka.clients.contract_records import ContractRecords
from sparklag_schemas import Observation, ResolvedSettings
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.counters import Refusals

_HEARTBEATS: Final = 3
"""A driver reports each of its queries at every heartbeat."""
_READ_S: Final = 10.0


async def recent_observations(settings: ResolvedSettings) -> list[Observation]:
    """The newest of each query in the last heartbeats, as far as they are read in ten seconds.

    Raises KAFKA_FAILURES.
    """
    topic = settings.offsets_topic
    records = ContractRecords(Observation, topic, settings, MessageFormats(settings), Refusals())
    consumer = ContractConsumer(settings, records.refuse_batch)
    consumer.subscribe([topic])
    newest: dict[str, Observation] = {}
    deadline_s = time.monotonic() + _READ_S
    try:
        await consumer.start()
        partitions = consumer.assignment()
        if not partitions:
            return []
        since_ms = epoch_ms() - round(_HEARTBEATS * settings.heartbeat_s * 1000)
        starts = await consumer.offsets_for_times(dict.fromkeys(partitions, since_ms))
        ends = await consumer.end_offsets(partitions)
        for partition, end in ends.items():
            start = starts.get(partition)
            consumer.seek(partition, end if start is None else start.offset)
        async for batch in read_to(consumer, ends, deadline_s):
            await records.learn(batch)
            for record in batch:
                observation = records.decoded(record)
                if observation is not None:
                    newest[observation.query_id] = observation
    finally:
        await consumer.stop()
    return list(newest.values())

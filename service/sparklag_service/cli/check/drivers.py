"""Checks of the drivers that report now, from the end of `processed-offsets`."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from sparklag_kafka.clients.consumer import ContractConsumer, read_to
from sparklag_kafka.clients.contract_records import ContractRecords
from sparklag_schemas import Observation, ResolvedSettings
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.messages.enumerations import SCHEMA_VERSION
from sparklag_schemas.messages.topics import feedback_topics, own_topic_names
from sparklag_schemas.settings.clusters import ClusterNames
from sparklag_schemas.text.printable import first_few, printable
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.cli.check.result import MAX_SKEW_S, SYNCHRONISE, CheckResult, bad, note, ok
from sparklag_service.counters import Refusals
from sparklag_service.evaluation.status import FEEDBACK

_HEARTBEATS: Final = 3
"""Each driver reports its queries at every heartbeat."""
_READ_S: Final = 10.0


async def check_drivers(settings: ResolvedSettings) -> list[CheckResult]:
    """Check the queries that drivers report now. Raises one of KAFKA_FAILURES."""
    observed = await _recent_observations(settings)
    drivers = [observation for observation in observed if observation.run_id is not None]
    if not drivers:
        return [
            note("drivers", "no driver has reported a query in the last heartbeats", "observe one")
        ]
    count = len({observation.query_id for observation in drivers})
    return [
        ok("drivers", f"queries that drivers report: {count}"),
        *_check_driver_versions(drivers),
        *_check_driver_clocks(drivers),
        *_check_feedback(drivers, settings),
    ]


def _check_driver_versions(drivers: Iterable[Observation]) -> list[CheckResult]:
    versions = {observation.schema_version for observation in drivers} - {SCHEMA_VERSION}
    if not versions:
        return [ok("versions", f"drivers write messages of version {SCHEMA_VERSION}, as this one")]
    text = f"drivers write messages of version {printable(first_few(sorted(versions)))}"
    remedy = f"this command is of {SCHEMA_VERSION}: upgrade what is older, the service first"
    return [note("versions", text, remedy)]


def _check_driver_clocks(drivers: Iterable[Observation]) -> list[CheckResult]:
    now_ms = epoch_ms()
    ahead = [driver for driver in drivers if driver.observed_at - now_ms > MAX_SKEW_S * 1000]
    if not ahead:
        return [ok("clock", "the clock of no driver is ahead of this machine's")]
    return [
        bad(
            "clock",
            f"the clock of the driver of {printable(driver.display_name)} is at least"
            f" {(driver.observed_at - now_ms) / 1000:.1f} s ahead of this machine's",
            SYNCHRONISE,
        )
        for driver in ahead
    ]


def _check_feedback(
    drivers: Iterable[Observation], settings: ResolvedSettings
) -> list[CheckResult]:
    names, own = ClusterNames(settings), own_topic_names(settings)
    return [
        bad(
            "drivers",
            f"query {printable(observation.display_name)} also reads {topic}",
            f"exclude it there: {topic} is {FEEDBACK}, and the query never catches up",
        )
        for observation in drivers
        for source in observation.sources
        if names.alias_of(source.bootstrap_servers, observation.cluster) == settings.cluster
        for topic in feedback_topics(own, source.topics, source.processed)
    ]


async def _recent_observations(settings: ResolvedSettings) -> list[Observation]:
    topic = settings.offsets_topic
    records = ContractRecords(Observation, topic, settings, MessageFormats(settings), Refusals())
    consumer = ContractConsumer(settings, records.refuse_batch)
    consumer.subscribe([topic])
    newest: dict[str, Observation] = {}
    deadline_s = time.monotonic() + _READ_S
    async with consumer:
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
    return list(newest.values())

"""Finds out what keeps sparklag from working with a Kafka, without writing anything to it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.clients.connection import connection_problem
from sparklag_kafka.clients.rights import may_read, may_use_group, may_write
from sparklag_kafka.clients.topic_setup import find_problems
from sparklag_kafka.errors import KAFKA_FAILURES, KafkaUnavailable, error_text
from sparklag_kafka.protocol import error_codes
from sparklag_kafka.protocol.metadata import TopicMetadata
from sparklag_offsets.checkpoints import CheckpointStore
from sparklag_offsets.errors import CheckpointError, StoreError
from sparklag_offsets.store.offset_store import opened_store
from sparklag_schemas import ResolvedSettings, Settings, SparklagError
from sparklag_schemas.formats import MessageFormats
from sparklag_schemas.redaction import redact_location
from sparklag_schemas.topics import own_topics
from sparklag_service.recording.offset_recorder import store_group


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    good: bool
    text: str
    remedy: str | None = None


async def diagnose(settings: ResolvedSettings) -> list[Finding]:
    """Look at the broker, then the topics, then the rights, as far as can be seen; at the schema
    registry, at the checkpoints that are to be watched, and at the offset store."""
    findings = await _look_at_kafka(settings)
    findings += await _look_at_registry(settings)
    findings += await _look_at_checkpoints(settings)
    return findings + await _look_at_store(settings)


async def _look_at_kafka(settings: ResolvedSettings) -> list[Finding]:
    cause = await connection_problem(settings.access)
    if cause is not None:
        return [Finding(False, f"Kafka at {settings.bootstrap_servers}: {cause}")]
    findings = [Finding(True, f"Kafka at {settings.bootstrap_servers} answers")]
    topics = [spec.name for spec in own_topics(settings)]
    async with BrokerPool(settings.access) as pool:
        try:
            described = await pool.refresh(topics)
            if described is None:
                raise KafkaUnavailable("no broker answers")
            seen = [_look_at_topic(topic, settings) for topic in described]
            findings += seen
            if all(finding.good for finding in seen):
                findings += await _look_at_settings(settings)
                findings += await _look_at_rights(pool, topics, settings)
        except KAFKA_FAILURES as error:
            findings.append(Finding(False, f"Kafka stopped answering: {error_text(error)}"))
    return findings


def _look_at_topic(topic: TopicMetadata, settings: Settings) -> Finding:
    if topic.error_code == error_codes.NONE:
        return Finding(True, f"topic {topic.name} is there, {len(topic.leaders)} partitions")
    if topic.error_code == error_codes.TOPIC_FORBIDDEN:
        remedy = "grant Describe and Read on it"
        return Finding(False, f"topic {topic.name}: no right to see it", remedy)
    remedy = "`sparklag topics create` makes it"
    if settings.create_topics:
        remedy += " now, the service when it starts"
    return Finding(False, f"topic {topic.name} is not there", remedy)


async def _look_at_settings(settings: ResolvedSettings) -> list[Finding]:
    problems = await find_problems(settings.access, own_topics(settings))
    if not problems:
        return [Finding(True, "the topics' settings keep what is needed")]
    return [Finding(False, problem) for problem in problems]


async def _look_at_rights(
    pool: BrokerPool, topics: list[str], settings: ResolvedSettings
) -> list[Finding]:
    findings = []
    for topic in reversed(topics):
        if await may_write(pool, topic):
            findings.append(Finding(True, f"may write to topic {topic}"))
        else:
            is_offsets = topic == settings.offsets_topic
            who = "drivers publish" if is_offsets else "the service publishes"
            remedy = f"grant Write: {who} there"
            findings.append(Finding(False, f"no right to write to topic {topic}", remedy))
    for topic in (settings.offsets_topic, settings.lag_topic):
        if await may_read(settings, topic):
            findings.append(Finding(True, f"may read topic {topic}"))
        else:
            findings.append(Finding(False, f"no right to read topic {topic}", "grant Read on it"))
    for group_id in _groups(settings):
        if await may_use_group(settings, group_id, settings.offsets_topic):
            findings.append(Finding(True, f"may use group {group_id}"))
        else:
            findings.append(
                Finding(False, f"no right to group {group_id}", "grant Read on the group")
            )
    return findings


def _groups(settings: Settings) -> list[str]:
    """Those the service reads `processed-offsets` with."""
    groups = [settings.group_id]
    if settings.store.url is not None:
        groups.append(store_group(settings))
    return groups


async def _look_at_registry(settings: Settings) -> list[Finding]:
    if settings.registry.url is None:
        return []
    try:
        missing = await MessageFormats(settings).unregistered()
    except SparklagError as error:
        return [Finding(False, str(error))]
    found = [Finding(True, f"schema registry {settings.registry.url} answers")]
    remedy = "`sparklag topics create` registers it now"
    if settings.registry.register:
        remedy += ", who writes there when it starts"
    return found + [
        Finding(False, f"the schema of topic {topic} is not registered", remedy)
        for topic in missing
    ]


async def _look_at_store(settings: Settings) -> list[Finding]:
    if settings.store.url is None:
        return []
    try:
        async with opened_store(settings.store.url) as store:
            known = await store.queries()
    except StoreError as error:
        return [Finding(False, str(error))]
    return [Finding(True, f"may read the offset store at {store.shown}, {len(known)} queries")]


async def _look_at_checkpoints(settings: Settings) -> list[Finding]:
    patterns = settings.checkpoint_patterns
    if not patterns:
        return []
    store = CheckpointStore(settings.checkpoints.storage, settings.checkpoints.timeout_s)
    loop = asyncio.get_running_loop()
    found = [loop.run_in_executor(None, _look_at_checkpoint, store, one) for one, _ in patterns]
    try:
        return list(await asyncio.gather(*found))
    finally:
        await loop.run_in_executor(None, store.close)


def _look_at_checkpoint(store: CheckpointStore, pattern: str) -> Finding:
    try:
        locations = store.find(pattern)
        store.reader(locations[0]).poll()
    except CheckpointError as error:
        return Finding(False, f"checkpoints: {error}")
    many = f", {len(locations)} of them" if len(locations) > 1 else ""
    return Finding(True, f"may read checkpoints {redact_location(pattern)}{many}")

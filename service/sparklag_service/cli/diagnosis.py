"""Finds out what keeps sparklag from working with a Kafka, without writing anything to it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.structs import TopicPartition

from sparklag_kafka.clients.connection import TrustedBrokers, client_options, explain_failure
from sparklag_kafka.clients.consumer import ContractConsumer
from sparklag_kafka.clients.topic_setup import find_problems
from sparklag_offsets.checkpoints import CheckpointStore
from sparklag_offsets.errors import CheckpointError, StoreError
from sparklag_offsets.store.stores import opened_store
from sparklag_schemas import ResolvedSettings, Settings, SparklagError
from sparklag_schemas.formats import MessageFormats
from sparklag_schemas.redaction import redact_location
from sparklag_schemas.topics import own_topics
from sparklag_service.recording.store_recording import store_group

_NO_SUCH_PARTITION = 2**31 - 2
_FETCH_MS = 1_000


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
    cause = await explain_failure(settings.access)
    if cause is not None:
        return [Finding(False, f"Kafka at {settings.bootstrap_servers}: {cause}")]
    findings = [Finding(True, f"Kafka at {settings.bootstrap_servers} answers")]
    options = client_options(settings.access)
    client = AIOKafkaClient(**options)
    TrustedBrokers(settings.access).guard(client)
    try:
        await client.bootstrap()
        topics = [spec.name for spec in own_topics(settings)]
        seen = await _look_at_topics(client, topics, settings)
        findings += seen
        if all(finding.good for finding in seen):
            findings += await _look_at_settings(settings)
            for topic in reversed(topics):
                who = (
                    "drivers publish"
                    if topic == settings.offsets_topic
                    else "the service publishes"
                )
                findings.append(await _may_write(client, topic, who))
            for topic in (settings.offsets_topic, settings.lag_topic):
                findings.append(await _may_read(settings, topic))
            for group_id in _groups(settings):
                findings.append(await _may_use_group(settings, group_id))
    except (KafkaError, OSError, asyncio.TimeoutError) as error:
        findings.append(Finding(False, f"Kafka stopped answering: {error or type(error).__name__}"))
    finally:
        await client.close()
    return findings


async def _look_at_topics(
    client: AIOKafkaClient, topics: list[str], settings: Settings
) -> list[Finding]:
    request = MetadataRequest(topics, allow_auto_topic_creation=False)
    answer = await client.send(client.get_random_node(), request)
    findings = []
    for error_code, topic, _internal, partitions in answer.topics:
        error = for_code(error_code)
        if error_code == 0:
            findings.append(Finding(True, f"topic {topic} is there, {len(partitions)} partitions"))
        elif error is TopicAuthorizationFailedError:
            findings.append(
                Finding(
                    False, f"topic {topic}: no right to see it", "grant Describe and Read on it"
                )
            )
        elif settings.create_topics:
            findings.append(
                Finding(
                    False,
                    f"topic {topic} is not there",
                    "`sparklag topics create` makes it now, the service when it starts",
                )
            )
        else:
            findings.append(
                Finding(False, f"topic {topic} is not there", "`sparklag topics create` makes it")
            )
    return findings


async def _look_at_settings(settings: ResolvedSettings) -> list[Finding]:
    problems = await find_problems(settings.access, own_topics(settings))
    if not problems:
        return [Finding(True, "the topics' settings keep what is needed")]
    return [Finding(False, problem) for problem in problems]


async def _may_write(client: AIOKafkaClient, topic: str, who: str) -> Finding:
    # Kafka looks at the rights before it looks for the partition: a write to one that cannot be
    # tells whether the right is there, and writes nothing.
    request = ProduceRequest(
        transactional_id=None,
        required_acks=1,
        timeout=5_000,
        topics=[(topic, [(_NO_SUCH_PARTITION, b"")])],
    )
    answer = await client.send(client.get_random_node(), request)
    error = for_code(answer.topics[0][1][0][1])
    if error is TopicAuthorizationFailedError:
        return Finding(False, f"no right to write to topic {topic}", f"grant Write: {who} there")
    return Finding(True, f"may write to topic {topic}")


async def _may_read(settings: ResolvedSettings, topic: str) -> Finding:
    partition = TopicPartition(topic, 0)
    consumer = ContractConsumer(settings, _ignore, auto_offset_reset="latest")
    consumer.assign([partition])
    try:
        await consumer.start()
        await consumer.getmany(partition, timeout_ms=_FETCH_MS)
    except TopicAuthorizationFailedError:
        return Finding(False, f"no right to read topic {topic}", "grant Read on it")
    finally:
        await consumer.stop()
    return Finding(True, f"may read topic {topic}")


async def _may_use_group(settings: ResolvedSettings, group_id: str) -> Finding:
    partition = TopicPartition(settings.offsets_topic, 0)
    consumer = ContractConsumer(settings, _ignore, group_id=group_id)
    consumer.assign([partition])
    try:
        await consumer.start()
        # Kafka leaves out what may not be seen: a topic counts as one without a commit.
        await consumer.committed(partition)
    except GroupAuthorizationFailedError:
        return Finding(False, f"no right to group {group_id}", "grant Read on the group")
    finally:
        await consumer.stop()
    return Finding(True, f"may use group {group_id}")


def _ignore(first: int, after: int, why: str) -> None:
    """What cannot be read says nothing of rights."""


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
        store.reader(locations[0]).look()
    except CheckpointError as error:
        return Finding(False, f"checkpoints: {error}")
    many = f", {len(locations)} of them" if len(locations) > 1 else ""
    return Finding(True, f"may read checkpoints {redact_location(pattern)}{many}")

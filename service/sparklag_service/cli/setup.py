"""`sparklag check` and `sparklag topics`: what a Kafka must have for sparklag to work with it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass

import msgspec
import typer

from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.clients.client_options import (
    connection_problem,
    explain_error,
    quiet_client_logs,
)
from sparklag_kafka.clients.rights import may_read, may_use_group, may_write
from sparklag_kafka.clients.topic_setup import create_missing, find_problems
from sparklag_kafka.errors import KAFKA_FAILURES, KafkaUnavailable, error_text
from sparklag_kafka.protocol import error_codes
from sparklag_kafka.protocol.metadata import TopicMetadata
from sparklag_offsets.checkpoints import CheckpointStore
from sparklag_offsets.errors import CheckpointError, StoreError
from sparklag_offsets.store.stores import open_store
from sparklag_schemas import ResolvedSettings, Settings, SparklagError
from sparklag_schemas.clusters import ClusterNames
from sparklag_schemas.formats import MessageFormats
from sparklag_schemas.printable import printable
from sparklag_schemas.redaction import redact_location
from sparklag_schemas.topics import feedback_topics, own_topic_names, own_topics
from sparklag_service.cli.recent_observations import recent_observations
from sparklag_service.cli.terminal import (
    BootstrapServers,
    Config,
    console,
    escape,
    kafka_settings,
)
from sparklag_service.cli.usage import CommandGroup
from sparklag_service.errors import ServiceError
from sparklag_service.evaluation.status import FEEDBACK
from sparklag_service.recording.store_recorder import store_group

topics_app = typer.Typer(help="sparklag's own topics.", no_args_is_help=True, cls=CommandGroup)


def check(bootstrap_servers: BootstrapServers = None, config: Config = None) -> None:
    """Check whether Kafka is reachable, the topics and the rights are there, and what to do."""
    settings = kafka_settings(config, bootstrap_servers)
    quiet_client_logs()
    results = asyncio.run(diagnose(settings))
    out = console()
    for result in results:
        mark = "[green]ok [/green]" if result.ok else "[red]BAD[/red]"
        out.print(f"{mark} {escape(result.text)}")
        if result.remedy:
            out.print(f"    [dim]{escape(result.remedy)}[/dim]")
    if not all(result.ok for result in results):
        raise typer.Exit(1)


@dataclass(frozen=True)
class CheckResult:
    """Of one check."""

    ok: bool
    text: str
    remedy: str | None = None


def _ok(text: str) -> CheckResult:
    return CheckResult(True, text)


def _bad(text: str, remedy: str | None = None) -> CheckResult:
    return CheckResult(False, text, remedy)


async def diagnose(settings: ResolvedSettings) -> list[CheckResult]:
    """Check the broker, then the topics, then the rights, as far as they are visible; the schema
    registry, the watched checkpoints and the offset store. Nothing is written to Kafka."""
    results = await _check_kafka(settings)
    results += await _check_registry(settings)
    results += await _check_checkpoints(settings)
    return results + await _check_store(settings)


async def _check_kafka(settings: ResolvedSettings) -> list[CheckResult]:
    cause = await connection_problem(settings.access)
    if cause is not None:
        return [_bad(f"Kafka at {settings.bootstrap_servers}: {cause}")]
    results = [_ok(f"Kafka at {settings.bootstrap_servers} answers")]
    topics = [spec.name for spec in own_topics(settings)]
    async with BrokerPool(settings.access) as pool:
        try:
            described = await pool.refresh(topics)
            if described is None:
                raise KafkaUnavailable("no broker answers")
            of_topics = [_check_topic(topic, settings) for topic in described]
            results += of_topics
            if all(result.ok for result in of_topics):
                results += await _check_settings(settings)
                results += await _check_rights(pool, topics, settings)
                if await may_read(pool, settings.offsets_topic):
                    results += await _check_feedback(settings)
        except KAFKA_FAILURES as error:
            results.append(_bad(f"Kafka stopped answering: {error_text(error)}"))
    return results


def _check_topic(topic: TopicMetadata, settings: Settings) -> CheckResult:
    if topic.error_code == error_codes.NONE:
        return _ok(f"topic {topic.name} is there, {len(topic.leaders)} partitions")
    if topic.error_code == error_codes.TOPIC_FORBIDDEN:
        remedy = "grant Describe and Read on it"
        return _bad(f"topic {topic.name}: no right to see it", remedy)
    remedy = "`sparklag topics create` makes it"
    if settings.create_topics:
        remedy += " now, the service when it starts"
    return _bad(f"topic {topic.name} is not there", remedy)


async def _check_settings(settings: ResolvedSettings) -> list[CheckResult]:
    problems = await find_problems(settings.access, own_topics(settings))
    if not problems:
        return [_ok("the topics' settings keep what is needed")]
    return [_bad(problem) for problem in problems]


async def _check_rights(
    pool: BrokerPool, topics: list[str], settings: ResolvedSettings
) -> list[CheckResult]:
    results = []
    for topic in reversed(topics):
        is_offsets = topic == settings.offsets_topic
        who = "drivers publish" if is_offsets else "the service publishes"
        has_right = await may_write(pool, topic)
        results.append(_right(has_right, f"write to topic {topic}", f"grant Write: {who} there"))
    for topic in (settings.offsets_topic, settings.lag_topic):
        has_right = await may_read(pool, topic)
        results.append(_right(has_right, f"read topic {topic}", "grant Read on it"))
    for group_id in _groups(settings):
        has_right = await may_use_group(pool, group_id, settings.offsets_topic)
        results.append(_right(has_right, f"use group {group_id}", "grant Read on the group"))
    return results


async def _check_feedback(settings: ResolvedSettings) -> list[CheckResult]:
    """The queries that drivers report now, and that read sparklag's own topics with others."""
    names, own = ClusterNames(settings), own_topic_names(settings)
    return [
        _bad(
            f"query {printable(observation.query or observation.query_id)} also reads {topic}",
            f"it never catches up: {topic} is {FEEDBACK}",
        )
        for observation in await recent_observations(settings)
        for source in observation.sources
        if names.alias_of(source.bootstrap_servers, observation.cluster) == settings.cluster
        for topic in feedback_topics(own, source.topics, source.processed)
    ]


def _right(has_right: bool, action: str, remedy: str) -> CheckResult:
    return _ok(f"may {action}") if has_right else _bad(f"no right to {action}", remedy)


def _groups(settings: Settings) -> list[str]:
    """The groups that read `processed-offsets`."""
    groups = [settings.group_id]
    if settings.store.url is not None:
        groups.append(store_group(settings))
    return groups


async def _check_registry(settings: Settings) -> list[CheckResult]:
    if settings.registry.url is None:
        return []
    try:
        missing = await MessageFormats(settings).unregistered()
    except SparklagError as error:
        return [_bad(str(error))]
    results = [_ok(f"schema registry {settings.registry.url} answers")]
    remedy = "`sparklag topics create` registers it now"
    if settings.registry.register:
        remedy += ", each writer when it starts"
    return results + [
        _bad(f"the schema of topic {topic} is not registered", remedy) for topic in missing
    ]


async def _check_store(settings: Settings) -> list[CheckResult]:
    if settings.store.url is None:
        return []
    try:
        async with aclosing(open_store(settings.store.url)) as store:
            queries = await store.queries()
    except StoreError as error:
        return [_bad(str(error))]
    return [_ok(f"may read the offset store at {store.shown}, {len(queries)} queries")]


async def _check_checkpoints(settings: Settings) -> list[CheckResult]:
    patterns = settings.checkpoint_patterns
    if not patterns:
        return []
    store = CheckpointStore(settings.checkpoints.storage, settings.checkpoints.timeout_s)
    loop = asyncio.get_running_loop()
    checks = [
        loop.run_in_executor(None, _check_checkpoint, store, pattern) for pattern, _ in patterns
    ]
    try:
        return list(await asyncio.gather(*checks))
    finally:
        await loop.run_in_executor(None, store.close)


def _check_checkpoint(store: CheckpointStore, pattern: str) -> CheckResult:
    try:
        locations = store.find(pattern)
        store.reader(locations[0]).poll()
    except CheckpointError as error:
        return _bad(f"checkpoints: {error}")
    many = f", {len(locations)} of them" if len(locations) > 1 else ""
    return _ok(f"may read checkpoints {redact_location(pattern)}{many}")


@topics_app.callback()
def _topics() -> None:
    """sparklag's own topics."""


@topics_app.command("create")
def create_topics(bootstrap_servers: BootstrapServers = None, config: Config = None) -> None:
    """Create the topics that are missing, with the settings they need; with format = "avro",
    register their schemas."""
    settings = kafka_settings(config, bootstrap_servers)
    quiet_client_logs()
    created, registered = asyncio.run(_create_and_register(settings))
    for spec in own_topics(settings):
        schema = ", its schema registered" if spec.name in registered else ""
        state = "created" if spec.name in created else "already there"
        typer.echo(f"{spec.name}: {state}{schema}")


async def _create_and_register(settings: ResolvedSettings) -> tuple[list[str], list[str]]:
    # This command may register schemas, also where the service may not.
    may = msgspec.structs.replace(settings.registry, register=True)
    formats = MessageFormats(msgspec.structs.replace(settings, registry=may))
    try:
        created = await create_missing(settings.access, own_topics(settings))
    except KAFKA_FAILURES as error:
        cause = await explain_error(error, settings.access)
        raise ServiceError(f"Kafka at {settings.bootstrap_servers}: {cause}") from error
    return created, await formats.register()

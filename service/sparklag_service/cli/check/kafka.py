"""Checks of Kafka, of sparklag's topics and the rights to them, and of the instances."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Final

from aiokafka import __version__ as aiokafka_version

from sparklag_kafka.access import connection_problem
from sparklag_kafka.brokers.group_offsets import describe_groups, find_coordinators, list_groups
from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.clients.topic_setup import (
    find_problems,
    may_read,
    may_use_group,
    may_write,
    producer_id_error,
)
from sparklag_kafka.errors import (
    COORDINATOR_LOADING,
    COORDINATOR_NOT_AVAILABLE,
    GROUP_FORBIDDEN,
    KAFKA_FAILURES,
    NONE,
    TOPIC_FORBIDDEN,
    KafkaUnavailable,
    RequestNotTaken,
    error_name,
    error_text,
)
from sparklag_kafka.protocol.groups import GroupDescription
from sparklag_kafka.protocol.metadata import TopicMetadata
from sparklag_kafka.protocol.requests import CANNOT_WORK, lacking
from sparklag_schemas import ResolvedSettings, Settings
from sparklag_schemas.messages.topics import own_topics
from sparklag_schemas.settings.clusters import NamePatterns
from sparklag_schemas.text.printable import first_few, printable
from sparklag_service.cli.check.drivers import check_drivers
from sparklag_service.cli.check.result import CheckResult, bad, note, ok
from sparklag_service.intakes.group_listing import COMMITS_TOPIC
from sparklag_service.recording import store_group

_APIS: Final = {0: "Produce", 1: "Fetch", 2: "ListOffsets", 9: "OffsetFetch"}
_AS_OTHERS: Final = "as other clients of that Kafka have it"
_REMEDIES: Final = {
    CANNOT_WORK: "set bootstrap_servers to another cluster, for sparklag's own topics",
    "certificate": f"set kafka.ssl_cafile, kafka.ssl_certfile and kafka.ssl_keyfile {_AS_OTHERS}",
    "password": f"set kafka.sasl_username and kafka.sasl_password {_AS_OTHERS}",
    "kafka.security_protocol": f"set kafka.security_protocol {_AS_OTHERS}",
}
"""By a part of the cause; the first that fits."""
_OLDER: Final = "the rest works; a broker of a newer version may take it"
_UNREACHED: Final = "clients have to reach it there: see its advertised.listeners"


async def check_kafka(settings: ResolvedSettings) -> list[CheckResult]:
    """Check the brokers, the topics and the rights, as far as they are visible. Writes no
    record."""
    cause = await connection_problem(settings.access)
    if cause is not None:
        matching = (remedy for part, remedy in _REMEDIES.items() if part in cause)
        remedy = next(matching, f"set bootstrap_servers and [kafka] {_AS_OTHERS}")
        return [bad("kafka", f"Kafka: {cause}", remedy)]
    results = [ok("kafka", f"Kafka at {settings.bootstrap_servers} answers")]
    topics = [spec.name for spec in own_topics(settings)]
    async with BrokerPool(settings.access) as pool:
        try:
            described = await pool.refresh(topics)
            if described is None:
                raise KafkaUnavailable("no broker answers")
            of_topics = [_check_topic(topic, settings) for topic in described]
            results += await check_brokers(pool)
            results += of_topics
            if all(result.state == "ok" for result in of_topics):
                results += await _check_settings(settings)
                results += await _check_rights(pool, topics, settings)
                results += await _check_groups(pool, settings)
                results.append(await _check_instances(pool, settings.group_id))
                if await may_read(pool, settings.offsets_topic):
                    results += await check_drivers(settings)
        except KAFKA_FAILURES as error:
            results.append(
                bad("kafka", f"Kafka stopped answering: {error_text(error)}", "check it again")
            )
    return results


def _check_topic(topic: TopicMetadata, settings: Settings) -> CheckResult:
    if topic.error_code == NONE:
        return ok("topics", f"topic {topic.name} is there, {len(topic.leaders)} partitions")
    if topic.error_code == TOPIC_FORBIDDEN:
        remedy = "grant Describe and Read on it"
        return bad("topics", f"topic {topic.name}: no right to see it", remedy)
    text = f"topic {topic.name} is not there"
    if not settings.create_topics:
        return bad("topics", text, "`sparklag topics create` creates it")
    remedy = "`sparklag serve` creates it when it starts, `sparklag topics create` now"
    return note("topics", text, remedy)


async def _check_settings(settings: ResolvedSettings) -> list[CheckResult]:
    topics = own_topics(settings)
    try:
        described = await find_problems(settings.access, topics)
    except RequestNotTaken:
        return []  # see `check_brokers`
    remedy = "change that setting of the topic with `kafka-configs.sh --alter`"
    results = [
        bad("topics", problem, remedy) for problems in described.values() for problem in problems
    ]
    unread = [spec.name for spec in topics if spec.name not in described]
    if unread:
        text = f"no right to describe the settings of {first_few(unread)}"
        results.append(note("topics", text, "grant DescribeConfigs on it"))
    return results or [ok("topics", "the topics' settings keep what is needed")]


async def _check_rights(
    pool: BrokerPool, topics: list[str], settings: ResolvedSettings
) -> list[CheckResult]:
    results = []
    for topic in reversed(topics):
        action = f"write to topic {topic}"
        has_right = await may_write(pool, topic)
        if topic == settings.offsets_topic and not has_right:
            remedy = "only the users of drivers need it"
            results.append(note("rights", f"no right to {action}", remedy))
        else:
            results.append(_right(has_right, action, "grant Write: the service publishes there"))
    code = await producer_id_error(pool)
    if code != NONE:
        text = f"Kafka answers {error_name(code)} to InitProducerId"
        remedy = "records are published without idempotence; grant IdempotentWrite on the cluster"
        if code in (COORDINATOR_LOADING, COORDINATOR_NOT_AVAILABLE):
            remedy = "check it again: nothing is published meanwhile"
        results.append(note("rights", text, remedy))
    for topic in (settings.offsets_topic, settings.lag_topic):
        has_right = await may_read(pool, topic)
        results.append(_right(has_right, f"read topic {topic}", "grant Read on it"))
    store = [] if settings.store.url is None else [store_group(settings)]
    for group_id in (settings.group_id, *store):
        has_right = await may_use_group(pool, group_id, settings.offsets_topic)
        results.append(_right(has_right, f"use group {group_id}", "grant Read on the group"))
    return results


async def _check_groups(pool: BrokerPool, settings: Settings) -> list[CheckResult]:
    """Check the rights that the group intake works without, which it therefore never names."""
    if not settings.groups.allow:
        return []
    results = []
    for topic in await pool.refresh([COMMITS_TOPIC]) or ():
        if topic.error_code == TOPIC_FORBIDDEN:
            remedy = "grant Describe on it: commits are then seen within a second"
            results.append(note("rights", f"no right to describe topic {COMMITS_TOPIC}", remedy))
    select = NamePatterns(settings.groups.allow, settings.groups.deny).select
    for connection in filter(None, map(pool.connection, list(pool.brokers))):
        _error_code, groups = await list_groups(connection)
        if any(select(group) for group, _protocol_type in groups):
            return results
    text = "groups.allow matches no consumer group, or there is no right to describe them"
    return [*results, note("rights", text, "grant Describe on the groups")]


def _right(has_right: bool, action: str, remedy: str) -> CheckResult:
    if has_right:
        return ok("rights", f"may {action}")
    return bad("rights", f"no right to {action}", remedy)


async def check_brokers(pool: BrokerPool) -> list[CheckResult]:
    """Check that each broker responds at the address in its metadata. Reports the request versions
    of the brokers, since brokers do not report their own version."""
    unreached = []
    lost: defaultdict[str, set[str]] = defaultdict(set)
    brokers: Counter[str] = Counter()
    connections = [pool.dedicated(address) for address in pool.brokers.values()]
    try:
        answers = await asyncio.gather(
            *(connection.api_versions() for connection in connections), return_exceptions=True
        )
    finally:
        await asyncio.gather(*(connection.aclose() for connection in connections))
    for (node_id, (host, port)), versions in zip(pool.brokers.items(), answers, strict=True):
        if not isinstance(versions, BaseException):
            shown = [f"{name} {versions[key][1]}" for key, name in _APIS.items() if key in versions]
            brokers[", ".join(shown)] += 1
            for request in lacking(versions):
                lost[request.lost].add(request.text)
        elif isinstance(versions, KAFKA_FAILURES):
            text = f"broker {node_id} at {host}:{port}: {error_text(versions)}"
            unreached.append(bad("kafka", printable(text), _UNREACHED))
        else:
            raise versions
    of_brokers = [
        f"of {count} brokers up to {shown}" if count > 1 else f"of a broker up to {shown}"
        for shown, count in brokers.items()
    ]
    text = f"aiokafka {aiokafka_version}; requests {'; '.join(of_brokers) or 'are not known'}"
    unreached += [
        note("versions", f"{what}: a broker takes no {', '.join(sorted(names))}", _OLDER)
        for what, names in lost.items()
    ]
    if len(brokers) == 1:
        return [*unreached, ok("versions", text)]
    return [*unreached, note("versions", text, "the brokers should be of one version")]


async def _check_instances(pool: BrokerPool, group_id: str) -> CheckResult:
    async for _, node_id, error_code in find_coordinators(pool, [group_id]):
        connection = pool.connection(node_id)
        if error_code == NONE and connection is not None:
            try:
                described = await describe_groups(connection, [group_id])
            except RequestNotTaken as error:
                return note("instances", error_text(error), _OLDER)
            return _instances(described[group_id], group_id)
    return note("instances", f"no broker coordinates group {group_id} yet", "check it again")


def _instances(group: GroupDescription, group_id: str) -> CheckResult:
    if group.error_code == GROUP_FORBIDDEN:
        return note("instances", f"no right to describe group {group_id}", "grant Describe on it")
    if not group.members:
        text = f"no instance runs: group {group_id} has no members"
        return note("instances", text, "`sparklag serve` starts one")
    idle = group.members_without_partitions
    if idle is None:
        return note(
            "instances",
            f"{group.members} instances share the work anew: the group is {printable(group.state)}",
            "check it again in a few seconds",
        )
    if idle == group.members:
        text = f"none of {group.members} instances has a partition: nothing is measured"
        return bad("instances", text, "restart them; is the offsets topic new?")
    if idle:
        return note(
            "instances",
            f"{idle} of {group.members} instances have no partition, and so no work",
            "run fewer, or add partitions to the offsets topic",
        )
    if group.members == 1:
        return ok("instances", "1 instance does all the work")
    return ok("instances", f"{group.members} instances share the work, each has partitions")

"""The ACLs of docs/operator/rights.md are enough for each role, and each of them is needed: one
that is taken away has its line, and all else goes on."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shlex
import sys
import uuid
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
)
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from sparklag_listener.errors import LagUnavailable
from sparklag_listener.lag.topic_source import TopicSource
from sparklag_listener.publishing import publish_offsets
from sparklag_listener.stats import Stats
from sparklag_schemas import (
    GroupSettings,
    LagEvent,
    MirrorSettings,
    Observation,
    StoreSettings,
)
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.cli.check import diagnose
from tests.background_task import background
from tests.commands import run, succeed
from tests.document_blocks import items
from tests.local_kafka import LocalKafka
from tests.logged import logged
from tests.messages import QUERY_ID, lag_event, position, seen
from tests.second_client import SecondClient
from tests.secured_kafka import login
from tests.service.cli.test_check import NOWHERE
from tests.service.conftest import send, settings_for, starting
from tests.service.groups import commit, metadata_of
from tests.waiting import DEADLINE_S, holds

pytestmark = pytest.mark.kafka

_PAGE: Final = "docs/operator/rights.md"


class Right(NamedTuple):
    """As the page names it, with the page's names of topics and groups."""

    user: str
    operation: str
    kind: str
    name: str
    pattern: str

    def __str__(self) -> str:
        return f"{self.operation} {self.kind} {self.name}"


def _documented() -> list[Right]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--add", action="store_true", required=True)
    for option in ("--bootstrap-server", "--command-config", "--allow-principal"):
        parser.add_argument(option, required=True)
    parser.add_argument("--resource-pattern-type", default="literal")
    for option in ("--operation", "--topic", "--group"):
        parser.add_argument(option, action="append", default=[])
    commands = [shlex.split(item.code) for item in items() if item.page == _PAGE]
    return [
        Right(principal.removeprefix("User:"), operation, kind, name, acl.resource_pattern_type)
        for program, *options in commands
        if program == "kafka-acls.sh"
        for acl in [parser.parse_args(options)]
        for principal in [acl.allow_principal]
        for operation in acl.operation
        for kind in ("topic", "group")
        for name in getattr(acl, kind)
    ]


RIGHTS: Final = _documented()
_CREATE: Final = (
    "topic {} does not exist and cannot be created (TOPIC_AUTHORIZATION_FAILED: Authorization"
    " failed.): create it with `sparklag topics create` and a user that may"
)
_MIRROR: Final = "Kafka cluster default: group spark-orders: "
_OTHER: Final = Right("sparklag", "Read", "topic", "other", "literal")

SERVICE: Final[dict[str, tuple[list[str], list[str]]]] = {
    "Read topic processed-offsets": (
        ["cannot read topic processed-offsets: no right to it"],
        ["topic processed-offsets: no right to see it"],
    ),
    "Read topic consumer-lag": (
        ["cannot read topic consumer-lag: no right to it"],
        ["no right to read topic consumer-lag"],
    ),
    "Write topic consumer-lag": (
        ["cannot publish to topic consumer-lag: no right to it"],
        ["no right to write to topic consumer-lag"],
    ),
    "Write topic consumer-lag-partitions": (
        ["cannot publish to topic consumer-lag-partitions: no right to it"],
        ["topic consumer-lag-partitions: no right to see it"],
    ),
    "Read group sparklag": (
        ["cannot read topic processed-offsets: no right to use group sparklag"],
        ["no right to use group sparklag"],
    ),
    "Read group sparklag-store": (
        ["cannot read topic processed-offsets: no right to use group sparklag-store"],
        ["no right to use group sparklag-store"],
    ),
    # One for what measures, and one for what commits.
    "Read topic orders": (
        [
            f"{_MIRROR}1 of 2 partitions not committed: topic orders: no right to it: the mirror"
            " needs Read on the topic",
            "no right to describe topic orders",
        ],
        [],
    ),
    "Read group spark-orders": (
        [f"{_MIRROR}no right to it: the mirror needs Read on the group"],
        [],
    ),
    # Without these the service works.
    **{
        f"DescribeConfigs topic {topic}": ([], [f"no right to describe the settings of {topic}"])
        for topic in ("processed-offsets", "consumer-lag", "consumer-lag-partitions")
    },
    "Describe topic __consumer_offsets": ([], ["no right to describe topic __consumer_offsets"]),
    "Describe group billing-": (
        [],
        ["groups.allow matches no consumer group, or there is no right to describe them"],
    ),
    **{
        f"Create topic {topic}": ([_CREATE.format(topic)], [])
        for topic in ("processed-offsets", "consumer-lag", "consumer-lag-partitions")
    },
}
"""A right of the service, and the lines without it: of the service itself, and of the check."""
DRIVER: Final = {
    "Write topic processed-offsets": "no right to it",
    "Create topic processed-offsets": _CREATE.format("processed-offsets"),
    "Read topic consumer-lag": (
        "topic consumer-lag on broker does not exist, or this user may not see it: a service"
        " writes it (`sparklag serve`)"
    ),
}
"""A right of a driver, and its line without it."""
NEEDED: Final = {
    *("Read topic processed-offsets", "Read topic consumer-lag", "Write topic consumer-lag"),
    *("Read group sparklag", *(right for right in SERVICE if right.startswith("Create"))),
}
"""Without one of these nothing is measured."""


class Cluster:
    """The broker, with topics and groups of a test instead of those of the page."""

    def __init__(self, broker: LocalKafka, user: str, folder: Path) -> None:
        self.orders = f"orders-{uuid.uuid4().hex[:8]}"
        billing = f"billing-{self.orders}"
        self.settings = settings_for(
            broker.bootstrap_servers,
            kafka=login(user),
            topic_partitions=1,
            partition_records=True,
            partition_topic=f"partitions-{self.orders}",
            store=StoreSettings(url=f"sqlite:///{folder}/offsets.db"),
            groups=GroupSettings(allow=[f"{billing}.*"]),
            mirror=MirrorSettings(queries=[self.orders], interval_s=0.1),
        )
        self.resolved = self.settings.resolved(broker.bootstrap_servers)
        self.internal = SecondClient(broker.internal_servers)
        self._admin = AdminClient({"bootstrap.servers": broker.internal_servers})
        # A name that has another in it comes first.
        self.names = {
            "spark-orders": f"spark-{self.orders}",
            "billing-": billing,
            "consumer-lag-partitions": self.settings.partition_topic,
            "other": f"other-{self.orders}",
            "orders": self.orders,
            "processed-offsets": self.settings.offsets_topic,
            "consumer-lag": self.settings.lag_topic,
            "sparklag-store": f"{self.settings.group_id}-store",
            "sparklag": self.settings.group_id,
        }

    def grant(self, *rights: Right) -> None:
        acls = [AclBinding(*self._acl(right)) for right in rights]
        for granted in self._admin.create_acls(acls).values():
            granted.result(60)

    def revoke(self, right: Right) -> None:
        for revoked in self._admin.delete_acls([AclBindingFilter(*self._acl(right))]).values():
            assert revoked.result(60)

    def _acl(self, right: Right) -> tuple[Any, ...]:
        return (
            ResourceType[right.kind.upper()],
            self.names.get(right.name, right.name),
            ResourcePatternType[right.pattern.upper()],
            f"User:{right.user}",
            "*",
            AclOperation[re.sub("(?<=[a-z])(?=[A-Z])", "_", right.operation).upper()],
            AclPermissionType.ALLOW,
        )

    def lines(self, *sources: Iterable[str]) -> list[str]:
        """The lines that name a right, each once, with the names of the page."""
        named = [
            line
            for line in chain(*sources)
            if re.search("no right|AUTHORIZATION|may not see", line)
        ]
        for name, ours in self.names.items():
            named = [line.replace(ours, name) for line in named]
        return sorted({re.sub("; (trying again|retrying)$", "", line) for line in named})

    async def checked(self) -> list[str]:
        lines = self.lines(result.text for result in await diagnose(self.resolved, NOWHERE))
        # Only drivers need it.
        return [line for line in lines if line != "no right to write to topic processed-offsets"]


def _each_of(user: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("lost", [r for r in RIGHTS if r.user == user], ids=str)


def test_each_right_of_the_page_has_its_line_here() -> None:
    by_user = {user: {str(r) for r in RIGHTS if r.user == user} for user, *_ in RIGHTS}
    assert by_user.pop("sparklag") == SERVICE.keys()
    assert by_user.pop("driver") == DRIVER.keys()
    assert by_user == {"history": {"Read topic consumer-lag", "Write topic processed-offsets"}}


@_each_of("sparklag")
async def test_a_right_of_the_service_that_is_missing_is_named_and_costs_only_its_purpose(
    lost: Right, scram_kafka: LocalKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(scram_kafka, "sparklag", tmp_path)
    settings, internal, orders = cluster.settings, cluster.internal, cluster.orders
    other = cluster.names["other"]
    for topic in (orders, other):
        internal.create(topic, 1)
    await commit(scram_kafka.internal_servers, f"{cluster.names['billing-']}s", {other: {0: 0}})
    cluster.grant(*RIGHTS, _OTHER)
    cluster.revoke(lost)
    of_service, of_check = SERVICE[str(lost)]
    query = seen(orders, {}, query=orders, sources=[position({orders: {0: 0}, other: {0: 0}})])
    async with starting(settings, internal) as service:

        def lines() -> list[str]:
            reasons = service.state.not_ready() | service.state.degraded()
            return cluster.lines(reasons.values(), logged(caplog))

        async def measures(lags: dict[str, int | None]) -> None:
            def shown(event: LagEvent) -> bool:
                return {topic.topic: topic.partitions[0].lag for topic in event.topics} == lags

            await service.shows(query.query_id, shown, f"{lags}")

        if lost.operation != "Create":
            await holds(lambda: internal.partitions(settings.partition_topic), "topics are there")
            service.observe(query)
        await holds(lambda: lines() == of_service, f"{of_service} and no other line")
        if str(lost) not in NEEDED:
            await measures({orders: None if lost.name == "orders" else 0, other: 0})
            await service.is_ready()
        assert await cluster.checked() == of_check
        caplog.clear()
        cluster.grant(lost)
        await holds(lambda: not service.state.not_ready(), "it is ready")
        service.observe(query)
        await measures({orders: 0, other: 0})
        await holds(lambda: not service.state.degraded(), "nothing is missing")
        assert await cluster.checked() == []
    assert internal.committed(f"spark-{orders}", orders) == {0: 0}


@_each_of("driver")
async def test_a_right_of_a_driver_that_is_missing_is_named_and_costs_only_its_purpose(
    lost: Right, scram_kafka: LocalKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(scram_kafka, "driver", tmp_path)
    settings, stats = cluster.settings, Stats()
    cluster.internal.create(settings.lag_topic, 1)
    event = lag_event(query_id=QUERY_ID, measured_at=epoch_ms(), observed_at=epoch_ms())
    send(cluster.internal, settings.lag_topic, event)

    async def read() -> list[str]:
        try:
            await asyncio.to_thread(TopicSource(cluster.resolved).find, QUERY_ID, DEADLINE_S)
        except LagUnavailable as error:
            return [str(error)]
        return []

    cluster.grant(*RIGHTS)
    cluster.revoke(lost)
    queue: NewestQueue[Observation] = NewestQueue(10, lambda each: each.query_id)
    async with background(publish_offsets(queue, cluster.resolved, stats)):
        queue.put_nowait(seen(cluster.orders, {0: 0}))
        await holds(lambda: stats.published or stats.last_error, "it is published, or is not")
        errors = [*await read(), *filter(None, [stats.last_error])]
        (line,) = cluster.lines(errors)
        assert line.replace(scram_kafka.bootstrap_servers, "broker") == DRIVER[str(lost)]
        cluster.grant(lost)
        await asyncio.wait_for(queue.join(), DEADLINE_S)
        assert await read() == []
    of_publishing = [line for line in logged(caplog) if "cannot publish" in line]
    assert len(of_publishing) == (lost.name == "processed-offsets")


async def test_what_the_check_tries_leaves_nothing_behind(
    scram_kafka: LocalKafka, tmp_path: Path
) -> None:
    cluster = Cluster(scram_kafka, "sparklag", tmp_path)
    settings, names = cluster.settings, cluster.names
    topics = (settings.offsets_topic, settings.lag_topic, settings.partition_topic)
    for topic in topics:
        cluster.internal.create(topic, 1)
    cluster.grant(*RIGHTS)
    await cluster.checked()
    for group in (names["sparklag"], names["sparklag-store"]):
        assert await metadata_of(scram_kafka.internal_servers, group) == {}
    for topic in topics:
        assert await asyncio.to_thread(cluster.internal.read_all, topic) == []


@pytest.mark.spark
@pytest.mark.slow
def test_the_history_job_works_with_its_rights_and_names_one_that_is_missing(
    scram_kafka: LocalKafka, tmp_path: Path
) -> None:
    cluster = Cluster(scram_kafka, "history", tmp_path)
    settings, kafka = cluster.settings, cluster.settings.kafka
    for topic in (settings.offsets_topic, settings.lag_topic):
        cluster.internal.create(topic, 1)
    send(cluster.internal, settings.lag_topic, lag_event())
    command = [sys.executable, "-m", "sparklag_service", "history", "run", "--once"]
    command += ["--bootstrap-servers", scram_kafka.bootstrap_servers]
    environment = {
        "SPARKLAG_LAG_TOPIC": settings.lag_topic,
        "SPARKLAG_OFFSETS_TOPIC": settings.offsets_topic,
        "SPARKLAG_KAFKA__SECURITY_PROTOCOL": kafka.security_protocol,
        "SPARKLAG_KAFKA__SASL_MECHANISM": str(kafka.sasl_mechanism),
        "SPARKLAG_KAFKA__SASL_USERNAME": str(kafka.sasl_username),
        "SPARKLAG_KAFKA__SASL_PASSWORD": str(kafka.sasl_password),
    }
    lost = next(r for r in RIGHTS if (r.user, r.operation) == ("history", "Read"))
    cluster.grant(*RIGHTS)
    cluster.revoke(lost)
    refused = run(*command, cwd=tmp_path, env=os.environ | environment)
    assert refused.returncode == 1
    line = refused.stderr.splitlines()[-1]
    assert "Topic authorization failed" in line
    cluster.grant(lost)
    succeed(*command, cwd=tmp_path, env=os.environ | environment)
    assert list((tmp_path / "lag-history").rglob("*.parquet"))
    assert cluster.internal.read_all(settings.offsets_topic)

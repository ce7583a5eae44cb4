"""The ACLs of docs/operator/rights.md are enough for each role, and each of them is needed: one
that is taken away has its line, and all else goes on."""

from __future__ import annotations

import asyncio
import re
import sys
import uuid
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBindingFilter
from msgspec.structs import asdict

from sparklag_listener.errors import LagUnavailable
from sparklag_listener.lag.topic_source import TopicSource
from sparklag_listener.publishing import publish_offsets
from sparklag_listener.stats import Stats
from sparklag_schemas import GroupSettings, LagEvent, MirrorSettings, Observation, StoreSettings
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.cli.check import diagnose
from tests.background_task import background
from tests.commands import run, succeed
from tests.document_blocks import ROOT
from tests.local_kafka import LocalKafka
from tests.logged import logged
from tests.messages import QUERY_ID, lag_event, position, seen
from tests.second_client import SecondClient
from tests.secured_kafka import login
from tests.service.cli.test_check import NOWHERE
from tests.service.cli.test_cli import environment
from tests.service.conftest import send, settings_for, starting
from tests.waiting import DEADLINE_S, holds

pytestmark = pytest.mark.kafka

_COMMAND: Final = re.compile(
    r"^kafka-acls\.sh --bootstrap-server broker:9092 --command-config admin\.properties --add"
    r" --allow-principal User:(\w+)((?: --operation \w+)+)((?: --(?:topic|group) \S+)+)"
    r"( --resource-pattern-type prefixed)?$",
    re.MULTILINE,
)


class Right(NamedTuple):
    user: str
    operation: str
    kind: str
    name: str
    is_prefix: bool = False

    def __str__(self) -> str:
        return f"{self.operation} {self.kind} {self.name}"


_PAGE: Final = (ROOT / "docs" / "operator" / "rights.md").read_text()
RIGHTS: Final = [
    Right(user, operation, kind, name, bool(prefixed))
    for user, operations, resources, prefixed in _COMMAND.findall(_PAGE)
    for operation in re.findall(r"--operation (\w+)", operations)
    for kind, name in re.findall(r"--(\w+) (\S+)", resources)
]
_OTHER: Final = Right("sparklag", "Read", "topic", "other")
_TOPICS: Final = ("processed-offsets", "consumer-lag", "consumer-lag-partitions")
_CREATE: Final = (
    "topic {} does not exist and cannot be created (TOPIC_AUTHORIZATION_FAILED: Authorization"
    " failed.): create it with `sparklag topics create` and a user that may"
)
_READS: Final = "cannot read topic processed-offsets: no right to"
_MIRROR: Final = "Kafka cluster default: group spark-orders: "
SERVICE: Final = {
    "Read topic processed-offsets": f"{_READS} it",
    "Read group sparklag": f"{_READS} use group sparklag",
    "Read group sparklag-store": f"{_READS} use group sparklag-store",
    "Read topic consumer-lag": "cannot read topic consumer-lag: no right to it",
    **{f"Write topic {t}": f"cannot publish to topic {t}: no right to it" for t in _TOPICS[1:]},
    "Read group spark-orders": f"{_MIRROR}no right to it: the mirror needs Read on the group",
    # One of what commits, and one of what measures.
    "Read topic orders": (
        f"{_MIRROR}1 of 2 partitions not committed: topic orders: no right to it: the mirror needs"
        " Read on the topic\nno right to describe topic orders"
    ),
    **{f"Create topic {topic}": _CREATE.format(topic) for topic in _TOPICS},
}
"""A right of the service, and its lines without it."""
CHECK: Final = {
    "Read topic processed-offsets": "topic processed-offsets: no right to see it",
    "Read group sparklag": "no right to use group sparklag",
    "Read group sparklag-store": "no right to use group sparklag-store",
    "Read topic consumer-lag": "no right to read topic consumer-lag",
    "Write topic consumer-lag": "no right to write to topic consumer-lag",
    "Write topic consumer-lag-partitions": "topic consumer-lag-partitions: no right to see it",
    "Describe topic __consumer_offsets": "no right to describe topic __consumer_offsets",
    "Describe group billing-": (
        "groups.allow matches no consumer group, or there is no right to describe them"
    ),
    **{f"DescribeConfigs topic {t}": f"no right to describe the settings of {t}" for t in _TOPICS},
}
"""A right of the service, and the line of `sparklag check` without it."""
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
    """The broker. Topics and groups have the names of the page, after a prefix of the test."""

    def __init__(self, broker: LocalKafka, user: str, folder: Path) -> None:
        self.prefix = prefix = f"{uuid.uuid4().hex[:8]}-"
        self.settings = settings_for(
            broker.bootstrap_servers,
            kafka=login(user),
            offsets_topic=f"{prefix}processed-offsets",
            lag_topic=f"{prefix}consumer-lag",
            partition_topic=f"{prefix}consumer-lag-partitions",
            group_id=f"{prefix}sparklag",
            topic_partitions=1,
            partition_records=True,
            store=StoreSettings(url=f"sqlite:///{folder}/offsets.db"),
            groups=GroupSettings(allow=[f"{prefix}billing-.*"]),
            mirror=MirrorSettings(
                queries=["orders"], group=f"{prefix}spark-{{query}}", interval_s=0.1
            ),
        )
        self.resolved = self.settings.resolved(broker.bootstrap_servers)
        self.internal = SecondClient(broker.internal_servers)
        self._admin = AdminClient({"bootstrap.servers": broker.internal_servers})

    def grant(self, *rights: Right) -> None:
        for granted in self._admin.create_acls([self._acl(right) for right in rights]).values():
            granted.result(60)

    def revoke(self, right: Right) -> None:
        for revoked in self._admin.delete_acls([self._acl(right)]).values():
            assert revoked.result(60)

    def _acl(self, right: Right) -> AclBindingFilter:
        is_kafkas = right.name.startswith("__")
        return AclBindingFilter(
            right.kind,
            right.name if is_kafkas else self.prefix + right.name,
            "prefixed" if right.is_prefix else "literal",
            f"User:{right.user}",
            "*",
            re.sub("(?<=[a-z])(?=[A-Z])", "_", right.operation),
            "allow",
        )

    def lines(self, *sources: Iterable[str]) -> str:
        """The lines that name a right, each once, with the names of the page."""
        named = re.compile("no right|AUTHORIZATION|may not see")
        left_out = re.compile(f"{self.prefix}|; (trying again|retrying)$")
        of_rights = filter(named.search, chain(*sources))
        return "\n".join(sorted({left_out.sub("", line) for line in of_rights}))

    async def checked(self) -> str:
        texts = [result.text for result in await diagnose(self.resolved, NOWHERE)]
        # Only drivers need it.
        unneeded = f"no right to write to topic {self.settings.offsets_topic}"
        return self.lines(text for text in texts if text != unneeded)


def _each_of(user: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("lost", [r for r in RIGHTS if r.user == user], ids=str)


def test_each_right_of_the_page_has_its_line_here() -> None:
    by_user = {user: {str(r) for r in RIGHTS if r.user == user} for user, *_ in RIGHTS}
    assert by_user == {
        "sparklag": SERVICE.keys() | CHECK.keys(),
        "driver": DRIVER.keys(),
        "history": {"Read topic consumer-lag", "Write topic processed-offsets"},
    }
    table = re.findall(r"^\| ([\w, ]+) \| (topic|group)s? (.+?) \|", _PAGE, re.MULTILINE)
    assert by_user["sparklag"] == {
        f"{operation} {kind} {name}"
        for operations, kind, names in table
        for operation in operations.split(", ")
        for name in re.findall("`(.+?)`", names)
    }


@_each_of("sparklag")
async def test_a_right_of_the_service_that_is_missing_is_named_and_costs_only_its_purpose(
    lost: Right, scram_kafka: LocalKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(scram_kafka, "sparklag", tmp_path)
    settings, internal = cluster.settings, cluster.internal
    orders, other = (internal.create(cluster.prefix + name) for name in ("orders", "other"))
    internal.commit(f"{cluster.prefix}billing-1", {other: {0: 0}})
    cluster.grant(*RIGHTS, _OTHER)
    cluster.revoke(lost)
    query = seen(orders, {}, sources=[position({orders: {0: 0}, other: {0: 0}})])
    async with starting(settings, internal) as service:

        def lines() -> str:
            reasons = service.state.not_ready() | service.state.degraded()
            return cluster.lines(reasons.values(), logged(caplog))

        async def measures(lags: dict[str, int | None]) -> None:
            def shown(event: LagEvent) -> bool:
                return {topic.topic: topic.partitions[0].lag for topic in event.topics} == lags

            await service.shows(query.query_id, shown, f"{lags}")

        if lost.operation != "Create":
            await holds(lambda: internal.partitions(settings.partition_topic), "topics are there")
            service.observe(query)
        expected = SERVICE.get(str(lost), "")
        await holds(lambda: lines() == expected, f"{expected!r} and no other line")
        if str(lost) not in NEEDED:
            await measures({orders: None if lost.name == "orders" else 0, other: 0})
            await service.is_ready()
        assert await cluster.checked() == CHECK.get(str(lost), "")
        caplog.clear()
        cluster.grant(lost)
        await holds(lambda: not service.state.not_ready(), "it is ready")
        service.observe(query)
        await measures({orders: 0, other: 0})
        await holds(lambda: not service.state.degraded(), "nothing is missing")
        assert await cluster.checked() == ""
    assert internal.committed(f"{cluster.prefix}spark-orders", orders) == {0: 0}


@_each_of("driver")
async def test_a_right_of_a_driver_that_is_missing_is_named_and_costs_only_its_purpose(
    lost: Right, scram_kafka: LocalKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(scram_kafka, "driver", tmp_path)
    settings, stats = cluster.settings, Stats()
    cluster.internal.create(settings.lag_topic)
    event = lag_event(query_id=QUERY_ID, measured_at=epoch_ms(), observed_at=epoch_ms())
    send(cluster.internal, settings.lag_topic, event)

    async def read() -> list[str]:
        try:
            await asyncio.to_thread(TopicSource(cluster.resolved).find, QUERY_ID, DEADLINE_S)
        except LagUnavailable as error:
            return [str(error).replace(scram_kafka.bootstrap_servers, "broker")]
        return []

    cluster.grant(*RIGHTS)
    cluster.revoke(lost)
    queue: NewestQueue[Observation] = NewestQueue(10, lambda each: each.query_id)
    async with background(publish_offsets(queue, cluster.resolved, stats)):
        queue.put_nowait(seen("orders", {0: 0}))
        await holds(lambda: stats.published or stats.last_error, "it is published, or is not")
        assert cluster.lines(await read(), filter(None, [stats.last_error])) == DRIVER[str(lost)]
        cluster.grant(lost)
        await asyncio.wait_for(queue.join(), DEADLINE_S)
        assert await read() == []
    of_publishing = [line for line in logged(caplog) if "cannot publish" in line]
    assert len(of_publishing) == (lost.name == "processed-offsets")


@pytest.mark.spark
@pytest.mark.slow
def test_the_history_job_works_with_its_rights_and_names_one_that_is_missing(
    scram_kafka: LocalKafka, tmp_path: Path
) -> None:
    cluster = Cluster(scram_kafka, "history", tmp_path)
    settings = cluster.settings
    for topic in (settings.offsets_topic, settings.lag_topic):
        cluster.internal.create(topic)
    send(cluster.internal, settings.lag_topic, lag_event())
    command = (sys.executable, "-m", "sparklag_service", "history", "run", "--once")
    env = environment(settings) | {
        f"SPARKLAG_KAFKA__{name.upper()}": value
        for name, value in asdict(settings.kafka).items()
        if isinstance(value, str)
    }
    lost = next(r for r in RIGHTS if (r.user, r.operation) == ("history", "Read"))
    cluster.grant(*RIGHTS)
    cluster.revoke(lost)
    refused = run(*command, cwd=tmp_path, env=env)
    assert refused.returncode == 1
    assert "Topic authorization failed" in refused.stderr.splitlines()[-1]
    cluster.grant(lost)
    succeed(*command, cwd=tmp_path, env=env)
    assert list((tmp_path / "lag-history").rglob("*.parquet"))
    assert cluster.internal.read_all(settings.offsets_topic)

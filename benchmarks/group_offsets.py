"""What it costs to read 10,000 offsets that consumer groups have committed, and to have their lag.

First the service's reader in this process, in turn with the bare request on a socket; then the
whole service in a process of its own, as the system accounts for it (Linux only).
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
import urllib.parse
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from statistics import median
from struct import Struct
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.types import String
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient

from benchmarks.comparison import Row, ms, say
from benchmarks.costs import Costs, Step
from benchmarks.large_cluster import create_topics, large_cluster
from benchmarks.service_process import READY_S, ServiceProcess, service_process, wait_for
from sparklag_kafka.access import quiet_client_logs
from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.protocol.encoding import PreparedRequest, Versions
from sparklag_kafka.protocol.groups import CommittedGroup, OffsetFetchRequest
from sparklag_schemas import ClusterSettings, GroupSettings
from sparklag_schemas.messages.observation import ConsumerGroup
from sparklag_schemas.settings import ClusterAccess
from sparklag_service.intakes.group_observations import GroupObservations, group_query_id
from sparklag_service.intakes.groups import GroupIntake

string = String("utf-8").encode

SHARE_BUDGET: Final = 0.01
"""Of a core, at the default interval."""
KMINION_CPU_MS: Final = 170.0
"""What KMinion takes for one scrape of as many partitions, on 2 cores."""

GROUPS: Final = 20
PARTITIONS: Final = 500
_ALL: Final = GROUPS * PARTITIONS
_ROUNDS: Final = 20
_WARM_UP: Final = 3
_WATCHED_S: Final = 20
_INTERVAL_S: Final = GroupSettings().interval_s
RECORDS: Final = 4 * (_WARM_UP + _ROUNDS) + _WATCHED_S + 10
_CREATED_S: Final = 600.0
_FRAME = Struct(">ihhih")
_CORRELATION: Final = Struct(">ii")
_LENGTH: Final = Struct(">i")
_COMMITTED: Final = Struct(">iqh")
_COMMIT_ANSWER: Final = Struct(">ih")
_NEWEST: Final = {9: (0, 8)}
_CLIENT: Final = b"bare"


def run() -> list[Row]:
    """Rows for the reading, and for the service as a whole."""
    quiet_client_logs()
    with grouped_cluster() as servers:
        committer = Committer(servers)
        reading = asyncio.run(_reading(servers, committer))
        environment = {
            "SPARKLAG_GROUPS__ALLOW": f"{group_name(0)[:-2]}.*",
            # One reading in each refresh: what a scrape is to an exporter.
            "SPARKLAG_GROUPS__INTERVAL_S": "1",
        }
        with service_process(servers, publish_interval_s=1, environment=environment) as service:
            whole = asyncio.run(_whole_service(committer, service))
    return [*reading, *whole]


@contextmanager
def grouped_cluster() -> Iterator[str]:
    """A broker with the groups' topics."""
    with large_cluster(_ALL) as cluster:
        _create_topics(cluster.bootstrap_servers)
        yield cluster.bootstrap_servers


async def _read_all(reader: GroupIntake) -> None:
    """Read every listed group once, as the service does when all are due."""
    await reader._group_by_partition()
    for partitions in reader._by_coordinator.values():
        for partition in partitions.values():
            partition.due_s = 0.0
    reader._start_reads()
    await reader._reads.wait()


async def _reading(servers: str, committer: Committer) -> list[Row]:
    counter = _Counter()
    groups = GroupSettings(allow=[".*"])
    cluster = ClusterSettings(bootstrap_servers=servers, groups=groups)
    reader = GroupIntake("default", cluster, counter)
    bare = _BareFetch(servers, [group_name(n) for n in range(GROUPS)])
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    confluent = AdminClient({"bootstrap.servers": servers})
    try:
        async with committer.ready() as commit_all:
            await commit_all()
            if not await reader.find_groups():
                raise RuntimeError("no broker answers")

            async def ours() -> None:
                counter.partitions = 0
                await _read_all(reader)
                if counter.partitions != _ALL:
                    raise RuntimeError(f"read {counter.partitions} of {_ALL}: {reader.failing}")

            async def bare_fetch() -> None:
                bare.fetch()

            async def aiokafka_admin() -> None:
                found = await asyncio.gather(
                    *(admin.list_consumer_group_offsets(group_name(n)) for n in range(GROUPS))
                )
                _check(sum(map(len, found)))

            async def confluent_admin() -> None:
                _check(await asyncio.to_thread(_confluent_offsets, confluent))

            say(f"group_offsets: {_ALL:,} offsets of {GROUPS} groups, in turn with bare requests")
            still = await _in_turn(ours, bare_fetch, before=None)
            moving = await _in_turn(ours, bare_fetch, before=commit_all)
            theirs = await _in_turn(aiokafka_admin, confluent_admin, before=None)
    finally:
        bare.close()
        await admin.close()
        await reader.aclose()
    against = "OffsetFetch"
    rows = []
    for what, (mine, other) in (("unchanged", still), ("all of them changed", moving)):
        what = f"{_ALL:,} group offsets, {what}"
        share = median(mine.cpu_ms) / 1e3 / _INTERVAL_S
        rows += [
            Row(f"{what}: time", ms(mine.wall_ms), f"{ms(other.wall_ms)}, {against}"),
            Row(
                f"{what}: CPU",
                f"{ms(mine.cpu_ms)}, {share:.2%} of a core",
                f"{ms(other.cpu_ms)}, {against}",
                reach=f"≤ {SHARE_BUDGET:.0%} of a core",
                reached=share <= SHARE_BUDGET,
            ),
            Row(f"{what}: stall (CPU)", ms(mine.stall_ms), ""),
        ]
    for name, side in zip(("aiokafka's admin", "confluent-kafka's admin"), theirs, strict=True):
        rows += [
            Row(
                f"{_ALL:,} group offsets: time", ms(still[0].wall_ms), f"{ms(side.wall_ms)}, {name}"
            ),
            Row(f"{_ALL:,} group offsets: CPU", ms(still[0].cpu_ms), f"{ms(side.cpu_ms)}, {name}"),
        ]
    return rows


def _check(found: int) -> None:
    if found != _ALL:
        raise RuntimeError(f"read {found} of {_ALL}")


def _confluent_offsets(admin: AdminClient) -> int:
    # One group in each call is all that it takes.
    asked: list[Any] = [
        admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_name(n))])[
            group_name(n)
        ]
        for n in range(GROUPS)
    ]
    return sum(len(future.result(60).topic_partitions) for future in asked)


class _Counter(GroupObservations):
    """Counts what is read."""

    def __init__(self) -> None:
        self.partitions = 0

    def wants(self, group: str) -> bool:
        return True

    def remembered(self) -> Iterable[str]:
        return ()

    def on_offsets(
        self, group: str, committed: CommittedGroup, described: ConsumerGroup, requested_at_ms: int
    ) -> None:
        self.partitions += sum(len(topic.offsets) for topic in committed.topics.values())

    def on_deleted(self, group: str, requested_at_ms: int) -> None:
        raise RuntimeError(f"group {group} is deleted")


class _BareFetch:
    """One OffsetFetch of all groups, sent and wholly received on a blocking socket."""

    def __init__(self, servers: str, groups: list[str]) -> None:
        host, _, port = servers.partition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = OffsetFetchRequest(groups).prepare(_NEWEST)
        head = _FRAME.pack(0, request.API_KEY, request.API_VERSION, 1, len(_CLIENT))
        message = head[4:] + _CLIENT + b"\0" + request.encode()
        self._message = len(message).to_bytes(4, "big") + message
        self._least = 20 * _ALL

    def fetch(self) -> None:
        self._socket.sendall(self._message)
        head = self._socket.recv(_CORRELATION.size, socket.MSG_WAITALL)
        size, correlation = _CORRELATION.unpack(head)
        left = memoryview(bytearray(size - 4))
        while left:
            left = left[self._socket.recv_into(left) :]
        if correlation != 1 or size < self._least:
            raise RuntimeError("not the answer to the bare request")

    def close(self) -> None:
        self._socket.close()


class _Commit:
    """OffsetCommit as one outside the group sends it."""

    def __init__(self, number: int, offset: int) -> None:
        partitions = b"".join(_COMMITTED.pack(p, offset, 0) for p in range(PARTITIONS))
        topic = string(topic_name(number)) + _LENGTH.pack(PARTITIONS) + partitions
        nobody = _LENGTH.pack(-1) + string("")
        self._body = string(group_name(number)) + nobody + _LENGTH.pack(1) + topic

    def prepare(self, versions: Versions) -> PreparedRequest:
        return PreparedRequest(8, 5, self._body, False, bytes)


class Committer:
    """Commits one further in each partition of a group. No client of Kafka's: those do more."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self.offsets = [0] * GROUPS
        """Committed last, by group."""

    @asynccontextmanager
    async def ready(self) -> AsyncIterator[Step]:
        """What commits everywhere, while in here."""
        pool = BrokerPool(ClusterAccess(self._servers), READY_S)
        self._connection = pool.connections()[0]

        async def commit_all() -> None:
            for number in range(GROUPS):
                await self.commit(number)

        try:
            yield commit_all
        finally:
            await pool.aclose()

    async def commit(self, number: int) -> None:
        """In one group, while `ready`."""
        self.offsets[number] += 1
        deadline = time.monotonic() + _CREATED_S
        while True:
            answer = await self._connection.send(_Commit(number, self.offsets[number]))
            # Behind the throttle time, the topic and the lengths: partitions and error codes.
            codes = answer[-_COMMIT_ANSWER.size * PARTITIONS :]
            if not any(code for _, code in _COMMIT_ANSWER.iter_unpack(codes)):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"group {group_name(number)} cannot commit: {set(codes)}")
            # The first who asks for a coordinator has the topic of committed offsets made.
            await self._connection.send(FindCoordinatorRequest(group_name(number), 0))
            await asyncio.sleep(0.1)


def _create_topics(servers: str) -> None:
    """The topics, with more than is ever committed in every partition."""
    say(f"group_offsets: creating {_ALL:,} partitions")
    asyncio.run(create_topics(servers, [topic_name(n) for n in range(GROUPS)], PARTITIONS))
    say(f"group_offsets: writing {_ALL * RECORDS:,} records")
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50})
    for topic in map(topic_name, range(GROUPS)):
        for partition in range(PARTITIONS):
            for _ in range(RECORDS):
                producer.produce(topic, b"", partition=partition)
        if producer.flush(_CREATED_S):
            raise TimeoutError("the records are not written")


async def _in_turn(one: Step, other: Step, before: Step | None) -> tuple[Costs, Costs]:
    costs = {one: Costs(), other: Costs()}
    for number in range(_WARM_UP + _ROUNDS):
        for step in (one, other) if number % 2 else (other, one):
            await costs[step].take(step, keep=number >= _WARM_UP, before=before)
    return costs[one], costs[other]


async def _whole_service(committer: Committer, service: ServiceProcess) -> list[Row]:
    published = await asyncio.to_thread(wait_for, lambda: measured_partitions(service))
    await asyncio.sleep(5)
    say(f"group_offsets: the whole service, {2 * _WATCHED_S} s")
    still = await _cpu_a_second(service, None)
    async with committer.ready() as commit_all:
        moving = await _cpu_a_second(service, commit_all)
    reach = f"≤ {KMINION_CPU_MS:g} ms"
    against = f"{KMINION_CPU_MS:g} ms, KMinion's scrape"
    rows = [
        Row(
            f"service, one refresh of {_ALL:,} group partitions, {what}: CPU",
            ms(samples),
            against,
            f"{median(samples) / KMINION_CPU_MS:.3g}\u00d7",
            reach,
            median(samples) <= KMINION_CPU_MS,
        )
        for what, samples in (("unchanged", still), ("all committed anew and published", moving))
    ]
    return [
        *rows,
        Row(
            "service: partitions published with a lag",
            f"{published:,}",
            f"{_ALL:,}, committed",
            reach="equal",
            reached=published == _ALL,
        ),
        Row("service: peak memory", f"{service.peak_mb():.0f} MB", ""),
    ]


async def _cpu_a_second(service: ServiceProcess, step: Step | None) -> list[float]:
    samples = []
    for _ in range(_WATCHED_S):
        began_s, cpu_s = time.monotonic(), service.cpu_s()
        if step is not None:
            await step()
        await asyncio.sleep(max(0.0, began_s + 1 - time.monotonic()))
        samples.append((service.cpu_s() - cpu_s) / (time.monotonic() - began_s) * 1e3)
    return samples


def measured_partitions(service: ServiceProcess) -> int | None:
    """Partitions in the lag of all groups, once every one of them has a lag."""
    published = 0
    for number in range(GROUPS):
        query_id = urllib.parse.quote(group_query_id("default", group_name(number)), safe="")
        event = json.loads(service.get(f"/lag/{query_id}"))
        partitions = [p for topic in event["topics"] for p in topic["partitions"]]
        if not partitions or any(p["lag"] is None for p in partitions):
            return None
        published += len(partitions)
    return published


def topic_name(number: int) -> str:
    return f"grouped-{number:02d}"


def group_name(number: int) -> str:
    return f"readers-{number:02d}"

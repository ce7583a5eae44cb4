"""From a group's commit to the moment its new offset can be read: sparklag, Burrow and KMinion.

20 groups of 500 partitions, on one broker. One group commits at a random moment; each tool is asked
for it over and over, one tool after the other; then the CPU of each, while nobody asks and every
group commits each 5 s. Burrow and KMinion are measured where SPARKLAG_BENCH_BURROW and
SPARKLAG_BENCH_KMINION name their programs. Linux only.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.comparison import Row, say
from benchmarks.group_offsets import (
    GROUPS,
    PARTITIONS,
    RECORDS,
    Committer,
    group_name,
    grouped_cluster,
    measured_partitions,
    topic_name,
)
from benchmarks.service_process import ServiceProcess, service_process, wait_for
from sparklag_jobs.broker.child_process import ChildProcess, free_port
from sparklag_kafka.access import quiet_client_logs
from sparklag_service.intakes.group_observations import group_query_id

DELAY_BUDGET_S: Final = 1.0
_COMMITS: Final = 20
_POLL_S: Final = 0.02
_SETTLED_S: Final = 15.0
_WATCHED_S: Final = 30.0
_COMMIT_INTERVAL_S: Final = 5.0
_KMINION_LAG: Final = "kminion_kafka_consumer_group_topic_partition_lag"
_PEERS: Final = {"Burrow": "SPARKLAG_BENCH_BURROW", "KMinion": "SPARKLAG_BENCH_KMINION"}


@dataclass(frozen=True)
class _Tool:
    """A running exporter."""

    name: str
    process: ServiceProcess
    offset: Callable[[ServiceProcess, int], int | None]
    """What it shows as committed in partition 0 of a group, by its process and the number."""


def run() -> list[Row]:
    """A row for each tool's delay, and one for its CPU."""
    quiet_client_logs()
    random.seed(1)
    with ExitStack() as stack:
        servers = stack.enter_context(grouped_cluster())
        committer = Committer(servers)
        asyncio.run(_commit_all(committer))
        tools = [stack.enter_context(_sparklag(servers))]
        for name, start in (("Burrow", _burrow), ("KMinion", _kminion)):
            if program := os.environ.get(_PEERS[name]):
                tools.append(stack.enter_context(start(program, servers)))
            else:
                say(f"commit_visibility: {name} is left out: {_PEERS[name]} is not set")
        return asyncio.run(_measure(committer, tools))


async def _commit_all(committer: Committer) -> None:
    async with committer.ready() as commit_all:
        await commit_all()


async def _measure(committer: Committer, tools: list[_Tool]) -> list[Row]:
    rows: list[Row] = []
    async with committer.ready() as commit_all:
        for tool in tools:
            await asyncio.to_thread(wait_for, lambda tool=tool: _shows_all(tool, committer))
        for tool in tools:
            say(f"commit_visibility: {_COMMITS} commits, {tool.name}")
            delays_s = sorted([await _delay_s(committer, tool) for _ in range(_COMMITS)])
            budget_s = DELAY_BUDGET_S if tool is tools[0] else None
            rows.append(
                Row(
                    f"a commit → shown by {tool.name}",
                    f"{median(delays_s):.2f} s, worst {delays_s[-1]:.2f} of {_COMMITS}",
                    "",
                    reach=f"≤ {budget_s:g} s" if budget_s else "",
                    reached=delays_s[-1] <= budget_s if budget_s else None,
                )
            )
        cpu_s = [tool.process.cpu_s() for tool in tools]
        await asyncio.sleep(_WATCHED_S)
        still = [tool.process.cpu_s() - before for tool, before in zip(tools, cpu_s, strict=True)]
        cpu_s = [tool.process.cpu_s() for tool in tools]
        for _ in range(int(_WATCHED_S / _COMMIT_INTERVAL_S)):
            began_s = time.monotonic()
            await commit_all()
            await asyncio.sleep(max(0.0, began_s + _COMMIT_INTERVAL_S - time.monotonic()))
        moving = [tool.process.cpu_s() - before for tool, before in zip(tools, cpu_s, strict=True)]
    for tool, still_s, moving_s in zip(tools, still, moving, strict=True):
        rows.append(
            Row(
                f"{GROUPS * PARTITIONS:,} group partitions, {tool.name}: CPU",
                f"{still_s / _WATCHED_S:.1%} of a core while nothing changes",
                f"{moving_s / _WATCHED_S:.1%} while all commit each {_COMMIT_INTERVAL_S:g} s",
            )
        )
    return rows


def _shows_all(tool: _Tool, committer: Committer) -> bool:
    return all(tool.offset(tool.process, n) == committer.offsets[n] for n in range(GROUPS))


async def _delay_s(committer: Committer, tool: _Tool) -> float:
    await asyncio.sleep(random.uniform(1, 3))
    number = random.randrange(GROUPS)
    await committer.commit(number)
    committed_s, expected = time.monotonic(), committer.offsets[number]
    await asyncio.to_thread(
        wait_for, lambda: tool.offset(tool.process, number) == expected, pause_s=_POLL_S
    )
    return time.monotonic() - committed_s


@contextmanager
def _sparklag(servers: str) -> Iterator[_Tool]:
    environment = {"SPARKLAG_GROUPS__ALLOW": f"{group_name(0)[:-2]}.*"}
    with service_process(servers, publish_interval_s=1, environment=environment) as service:
        wait_for(lambda: measured_partitions(service))
        time.sleep(_SETTLED_S)
        yield _Tool("sparklag", service, _sparklag_offset)


def _sparklag_offset(service: ServiceProcess, number: int) -> int | None:
    query_id = urllib.parse.quote(group_query_id("default", group_name(number)), safe="")
    (topic,) = json.loads(service.get(f"/lag/{query_id}"))["topics"]
    offset: int | None = topic["partitions"][0]["processed_offset"]
    return offset


@contextmanager
def _burrow(program: str, servers: str) -> Iterator[_Tool]:
    port = free_port()
    configuration = f"""
[logging]
level = "warn"
[client-profile.any]
client-id = "burrow"
kafka-version = "3.6.0"
[cluster.local]
class-name = "kafka"
servers = ["{servers}"]
client-profile = "any"
[consumer.local]
class-name = "kafka"
cluster = "local"
servers = ["{servers}"]
client-profile = "any"
[httpserver.local]
address = "127.0.0.1:{port}"
"""
    with _program("Burrow", port, "burrow.toml", configuration) as start:
        yield _Tool(
            "Burrow",
            start(lambda folder: [program, "--config-dir", str(folder)], {}),
            _burrow_offset,
        )


def _burrow_offset(burrow: ServiceProcess, number: int) -> int | None:
    consumer = burrow.get(f"/v3/kafka/local/consumer/{group_name(number)}")
    partition = json.loads(consumer)["topics"][topic_name(number)][0]
    return max((each["offset"] for each in partition["offsets"] if each is not None), default=None)


@contextmanager
def _kminion(program: str, servers: str) -> Iterator[_Tool]:
    port = free_port()
    configuration = f"""
kafka:
  brokers: ["{servers}"]
minion:
  consumerGroups: {{enabled: true, scrapeMode: adminApi, granularity: partition}}
exporter: {{host: 127.0.0.1, port: {port}}}
"""
    with _program("KMinion", port, "kminion.yaml", configuration) as start:
        yield _Tool(
            "KMinion",
            start(lambda _: [program], {"CONFIG_FILEPATH": "kminion.yaml"}),
            _kminion_offset,
        )


def _kminion_offset(kminion: ServiceProcess, number: int) -> int | None:
    """It shows lags: the log's end does not move."""
    text = kminion.get("/metrics").decode()
    for labels, lag in re.findall(rf"^{_KMINION_LAG}{{(.*)}} (.+)$", text, re.MULTILINE):
        if f'group_id="{group_name(number)}"' in labels and 'partition_id="0"' in labels:
            return RECORDS - int(float(lag))
    return None


@contextmanager
def _program(name: str, port: int, file_name: str, configuration: str) -> Iterator[Any]:
    """Calls `start` with a command and variables, in a folder with the file."""
    with tempfile.TemporaryDirectory() as name_of_folder, ExitStack() as stack:
        folder = Path(name_of_folder)
        (folder / file_name).write_text(configuration)

        def start(
            command: Callable[[Path], list[str]], variables: Mapping[str, str]
        ) -> ServiceProcess:
            process = ChildProcess(
                name,
                command(folder),
                log_path=folder / "log",
                environment={**os.environ, **variables},
                directory=folder,
            )
            process.start()
            stack.callback(process.stop)
            return ServiceProcess(process.pid, f"http://127.0.0.1:{port}")

        yield start

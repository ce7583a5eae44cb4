"""Kafka's own consumer-group command."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from sparklag_jobs.broker.maven import KAFKA_VERSION, Module, resolve_jars
from tests.commands import succeed
from tests.local_servers import java_command


class Described(NamedTuple):
    current: int
    log_end: int
    lag: int


def kafka_tools() -> list[Path]:
    return resolve_jars([Module("org.apache.kafka", "kafka-tools", KAFKA_VERSION)])


def describe(
    bootstrap_servers: str, groups: Iterable[str]
) -> dict[str, dict[tuple[str, int], Described]]:
    """The rows of these groups: by group, then by topic and partition."""
    output = succeed(
        *java_command(kafka_tools(), "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"),
        *("--bootstrap-server", bootstrap_servers, "--describe", "--timeout", "60000"),
        *(word for group in groups for word in ("--group", group)),
    )
    result: dict[str, dict[tuple[str, int], Described]] = {}
    for line in output.splitlines():
        match line.split():
            case [group, topic, partition, current, log_end, lag, *_] if partition.isdigit():
                row = Described(int(current), int(log_end), int(lag))
                result.setdefault(group, {})[topic, int(partition)] = row
    return result

"""A cluster with more partitions than one broker may open files for, in as few brokers as it takes.

Its data are in memory where the system has a place for that: a partition's files are forced to disk
when it is created, which takes three times as long there.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest.mock import patch

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from sparklag_kafka.brokers.logs import read_bounds
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_schemas import ClusterAccess
from sparklag_schemas.runtime.queue import by_count
from tests.local_kafka import LocalKafka

PARTITIONS_PER_BROKER: Final = 17_000
"""An open file and two memory maps each: of files, most systems allow some 20,000."""
_PROPERTIES: Final = {"log.index.size.max.bytes": "4096"}
"""An index file for each of so many partitions must not be as long as usual."""
_JAVA_OPTIONS: Final = "-Xmx1g"
_MEMORY: Final = Path("/dev/shm")
_PARTITIONS_AT_ONCE: Final = 5_000
"""In a request; Kafka refuses more than 10,000."""
_REQUEST_TIMEOUT_MS: Final = 180_000
_CREATED_S: Final = 900.0


@dataclass(frozen=True)
class LargeCluster:
    """Its address, and where its brokers keep their data."""

    bootstrap_servers: str
    directories: Sequence[Path]

    def log_bytes(self, topic: str) -> int:
        """Of a topic's record batches, as they were sent: compressed."""
        segments = (
            segment
            for directory in self.directories
            for segment in directory.glob(f"data/{topic}-[0-9]*/*.log")
        )
        return sum(segment.stat().st_size for segment in segments)


@contextmanager
def large_cluster(partitions: int) -> Iterator[LargeCluster]:
    """Brokers of one cluster, with room for so many partitions."""
    brokers = -(-partitions // PARTITIONS_PER_BROKER)
    parent = _MEMORY if _MEMORY.is_dir() else None
    # LocalKafka's own heap is for a handful of partitions; this variable has the last word.
    with patch.dict(os.environ, {"_JAVA_OPTIONS": _JAVA_OPTIONS}), ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=parent)))
        directories = [folder / str(node) for node in range(1, brokers + 1)]
        first = stack.enter_context(LocalKafka(directory=directories[0], properties=_PROPERTIES))
        for node, directory in enumerate(directories[1:], start=2):
            stack.enter_context(
                LocalKafka(directory=directory, properties=_PROPERTIES, joins=first, node_id=node)
            )
        yield LargeCluster(first.bootstrap_servers, directories)


async def create_topics(bootstrap_servers: str, names: Sequence[str], partitions: int) -> None:
    """Topics of so many partitions; return once each has a leader that responds.

    Raises TimeoutError.
    """
    admin = AIOKafkaAdminClient(
        bootstrap_servers=bootstrap_servers, request_timeout_ms=_REQUEST_TIMEOUT_MS
    )
    await admin.start()
    try:
        for chunk in by_count(names, max(1, _PARTITIONS_AT_ONCE // partitions)):
            topics = [NewTopic(name, partitions, replication_factor=1) for name in chunk]
            response = await admin.create_topics(topics, timeout_ms=_REQUEST_TIMEOUT_MS)
            errors = {message for _, error, message in response.topic_errors if error}
            if errors:
                raise RuntimeError(f"topics were not created: {errors}")
            await _until_led(ClusterAccess(bootstrap_servers), chunk)
    finally:
        await admin.close()


async def _until_led(access: ClusterAccess, names: Sequence[str]) -> None:
    deadline = time.monotonic() + _CREATED_S
    while time.monotonic() < deadline:
        try:
            bounds = await read_bounds(names, access)
        except KAFKA_FAILURES:
            bounds = {}
        if bounds and not any(topic.absence or topic.unknown for topic in bounds.values()):
            return
        await asyncio.sleep(0.5)
    raise TimeoutError(f"the partitions are not there after {_CREATED_S:g} s")

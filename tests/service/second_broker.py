"""A second Kafka node beside a LocalKafka, to be killed or frozen with the partitions it holds."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from sparklag_pipeline.child_process import ChildProcess
from sparklag_pipeline.java import find_java
from sparklag_pipeline.local_kafka import LocalKafka
from sparklag_pipeline.maven import kafka_jars
from tests.waiting import eventually

NODE_ID = 2


@contextmanager
def second_broker(first: LocalKafka, folder: Path) -> Iterator[ChildProcess]:
    """A broker of the same cluster, node 2; it has started, and may not have joined yet."""
    theirs = _properties(first.directory / "server.properties")
    cluster_id = _properties(first.directory / "data" / "meta.properties")["cluster.id"]
    internal, client = _free_port(), _free_port()
    configuration = folder / "server.properties"
    configuration.write_text(
        "\n".join(
            (
                "process.roles=broker",
                f"node.id={NODE_ID}",
                f"controller.quorum.voters={theirs['controller.quorum.voters']}",
                "controller.listener.names=CONTROLLER",
                f"listeners=INTERNAL://127.0.0.1:{internal},CLIENT://127.0.0.1:{client}",
                "inter.broker.listener.name=INTERNAL",
                "listener.security.protocol.map="
                "INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENT:PLAINTEXT",
                f"log.dirs={folder / 'data'}",
            )
        )
    )
    java = [str(find_java()), "-Xmx256m", "-cp", f"{kafka_jars()[0].parent}/*"]
    format_storage = ["kafka.tools.StorageTool", "format", "-t", cluster_id]
    subprocess.run(
        [*java, *format_storage, "-c", str(configuration)], check=True, capture_output=True
    )
    broker = ChildProcess(
        "the second broker",
        [*java, "kafka.Kafka", str(configuration)],
        log_path=folder / "broker.log",
    )
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


@contextmanager
def frozen(broker: ChildProcess) -> Iterator[None]:
    """Hold the broker (SIGSTOP): its connections stay open, and nothing is answered."""
    broker.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        broker.send_signal(signal.SIGCONT)


async def place(first: LocalKafka, topics: dict[str, list[int]]) -> None:
    """Create topics with each partition on the node that is named, once the second has joined."""
    admin = AIOKafkaAdminClient(bootstrap_servers=first.internal_servers)
    await admin.start()
    try:

        async def joined() -> bool:
            brokers = (await admin.describe_cluster())["brokers"]
            return NODE_ID in {broker["node_id"] for broker in brokers}

        await eventually(joined, "the second broker has joined")
        placed = [
            NewTopic(topic, -1, -1, replica_assignments={n: [node] for n, node in enumerate(nodes)})
            for topic, nodes in topics.items()
        ]
        await admin.create_topics(placed)
    finally:
        await admin.close()


def _properties(file: Path) -> dict[str, str]:
    lines = (line.partition("=") for line in file.read_text().splitlines() if "=" in line)
    return {name: value for name, _, value in lines}


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port

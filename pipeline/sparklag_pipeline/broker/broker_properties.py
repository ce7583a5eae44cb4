"""The configuration of a Kafka node that is small, quick to start and quick to answer."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

CONTROLLER_ID: Final = 1
"""The node that is the controller of its cluster."""


class Ports(NamedTuple):
    client: int
    internal: int
    controller: int


LOGGING: Final = """\
status = error
appender.console.type = Console
appender.console.name = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = CONSOLE
"""


def broker_properties(
    *,
    host: str,
    ports: Ports,
    data_dir: Path,
    security_protocol: str,
    advertised: str,
    overrides: Mapping[str, str],
    node_id: int = CONTROLLER_ID,
    controller: str | None = None,
) -> dict[str, str]:
    """Everything `server.properties` needs; `overrides` win.

    `controller` is the host:port of the node that is the controller, where that is another one.
    """
    internal = f"INTERNAL://{host}:{ports.internal}"
    listeners = [f"CLIENT://{host}:{ports.client}", internal]
    if controller is None:
        controller = f"{host}:{ports.controller}"
        listeners.append(f"CONTROLLER://{controller}")
        roles = "broker,controller"
    else:
        roles = "broker"
    return {
        "process.roles": roles,
        "node.id": str(node_id),
        "controller.quorum.voters": f"{CONTROLLER_ID}@{controller}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INTERNAL",
        "listeners": ",".join(listeners),
        "advertised.listeners": f"CLIENT://{advertised},{internal}",
        "listener.security.protocol.map": (
            f"CLIENT:{security_protocol},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "log.dirs": str(data_dir),
        "num.partitions": "1",
        # One node: one replica of everything, and few partitions, which come up faster.
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # By default half of the heap, held from the start on.
        "log.cleaner.dedupe.buffer.size": str(4 * 1024 * 1024),
        # After a kill the node must wait this long before it may join again as itself.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "500",
        **overrides,
    }


def scram_properties() -> dict[str, str]:
    """Let clients of the client listener log in with the users made when it was formatted."""
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return {
        "listener.name.client.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.client.scram-sha-256.sasl.jaas.config": login,
        "listener.name.client.scram-sha-512.sasl.jaas.config": login,
    }


def new_cluster_id() -> str:
    """A random id in Kafka's own form: 22 characters, and none of them a dash.

    Kafka's tools would take a leading dash for an option.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if "-" not in text:
            return text


def formatted_cluster_id(data_dir: Path) -> str | None:
    """The id of the cluster the folder was formatted for; None where it was not."""
    try:
        lines = (data_dir / "meta.properties").read_text().splitlines()
    except FileNotFoundError:
        return None
    return next(
        (line[len("cluster.id=") :] for line in lines if line.startswith("cluster.id=")), None
    )

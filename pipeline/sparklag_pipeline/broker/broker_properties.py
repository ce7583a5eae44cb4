"""The configuration of a Kafka node that is small, quick to start and quick to answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

CONTROLLER_ID: Final = 1
"""Of the node that is the controller of its cluster."""


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
    """All of `server.properties`; `overrides` win.

    `controller` is the controller's host:port, where that is another node.
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
        # One node holds one replica of everything. Few partitions start faster.
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # The default is half of the heap, allocated at the start.
        "log.cleaner.dedupe.buffer.size": str(4 * 1024 * 1024),
        # A node that was killed must wait this long before it can register again.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "500",
        **overrides,
    }


def scram_properties() -> dict[str, str]:
    """Logins on the client listener, by the users that formatting the storage has created."""
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return {
        "listener.name.client.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.client.scram-sha-256.sasl.jaas.config": login,
        "listener.name.client.scram-sha-512.sasl.jaas.config": login,
    }


def formatted_cluster_id(data_dir: Path) -> str | None:
    """The id of the cluster that the folder was formatted for; None where it was not."""
    path = data_dir / "meta.properties"
    lines = path.read_text().splitlines() if path.exists() else []
    prefix = "cluster.id="
    return next((line[len(prefix) :] for line in lines if line.startswith(prefix)), None)

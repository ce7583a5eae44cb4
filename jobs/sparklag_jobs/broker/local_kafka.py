"""A Kafka broker on this machine: its storage, configuration and process."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from sparklag_jobs.broker.child_process import ChildProcess, free_ports
from sparklag_jobs.broker.maven import find_java, kafka_jars
from sparklag_jobs.errors import BrokerFailed

_TOOL: Final = ("kafka.tools.StorageTool", "format", "--ignore-formatted")
HOST: Final = "127.0.0.1"
CONTROLLER_ID: Final = 1
START_TIMEOUT_S: Final = 180.0  # a busy machine takes long
_JVM_OPTIONS: Final = ("-Xms64m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_STARTED: Final = "Kafka Server started"
_PORT_ATTEMPTS: Final = 5
_LOG4J: Final = """\
status = error
appender.console.type = Console
appender.console.name = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = CONSOLE
"""

# A small node that starts and responds quickly: one replica of each of its few partitions.
_PROPERTIES: Final = {
    "process.roles": "broker,controller",
    "node.id": str(CONTROLLER_ID),
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "INTERNAL",
    "num.partitions": "1",
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
    "broker.heartbeat.interval.ms": "1000",
    # An idle controller writes nothing.
    "metadata.max.idle.interval.ms": "0",
}


class Ports(NamedTuple):
    client: int
    internal: int
    controller: int


class LocalKafka(ChildProcess):
    """One Kafka node, broker and controller, on free loopback ports.

    `stop` and `kill` keep ports and data, so `start` restarts the same broker; another one with the
    same `directory` continues from its data. The node dies with its owner (see ChildProcess).

    The client listener is `bootstrap_servers`, on `client_port` or a free port. The second
    listener, `internal_servers`, is always PLAINTEXT, so that a test can administer a secured
    broker.
    """

    _format_args: Sequence[str] = ()
    """Arguments for Kafka's storage tool."""
    jvm_options: Sequence[str] = ()
    """Further options of the broker's JVM."""

    def __init__(self, directory: Path, client_port: int | None = None) -> None:
        super().__init__("the Kafka broker", [], log_path=directory / "broker.log")
        self.directory = directory
        # Kafka's own form has 22 characters. Its tools parse a leading dash as an option.
        self._cluster_id = uuid.uuid4().hex[:22]
        self._client_port = client_port
        self._ports: Ports | None = None

    @property
    def ports(self) -> Ports:
        """The ports of the listeners. Raises BrokerFailed before the first start."""
        if self._ports is None:
            raise BrokerFailed("the broker has no address before it is started")
        return self._ports

    @property
    def bootstrap_servers(self) -> str:
        """host:port of the client listener. Raises BrokerFailed before the first start."""
        return f"{HOST}:{self.ports.client}"

    @property
    def internal_servers(self) -> str:
        """host:port of the PLAINTEXT listener."""
        return f"{HOST}:{self.ports.internal}"

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the broker and return once it responds.

        The first start takes free ports, and others if one is taken meanwhile. Raises JavaMissing,
        DownloadFailed, BrokerFailed (with the end of the log).
        """
        if self.is_alive():
            return
        deadline = time.monotonic() + timeout_s
        # After the first start the clients know the ports.
        attempts = _PORT_ATTEMPTS if self._ports is None else 1
        for attempt in range(1, attempts + 1):
            if self._ports is None:
                self._ports = self._free_ports()
            try:
                self._start_once(deadline)
                return
            except BrokerFailed:
                if attempt == attempts or not self.has_logged("Address already in use"):
                    raise
                self._ports = None

    def _free_ports(self) -> Ports:
        client, *others = free_ports(len(Ports._fields))
        if self._client_port is None:
            return Ports(client, *others)
        others = [port for port in (client, *others) if port != self._client_port]
        return Ports(self._client_port, *others[:2])

    def _start_once(self, deadline: float) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        configuration = self._write_configuration()
        self._format(configuration, max(1.0, deadline - time.monotonic()))
        self._command = [*self._java(*self.jvm_options), "kafka.Kafka", str(configuration)]
        super().start()
        # One listener may respond although the port of another is taken, and the broker ends. Only
        # this log line means that all are open and the broker is registered.
        while not self.has_logged(_STARTED):
            if not self.is_alive():
                raise BrokerFailed(self.describe_end())
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerFailed(f"the Kafka broker does not start:\n{self.log_end()}")
            time.sleep(0.1)

    def _java(self, *options: str) -> list[str]:
        return [
            str(find_java()),
            *_JVM_OPTIONS,
            *options,
            f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}",
            *("-cp", ":".join(map(str, kafka_jars()))),
        ]

    def _properties(self) -> dict[str, str]:
        listeners = f"CLIENT://{self.bootstrap_servers},INTERNAL://{self.internal_servers}"
        controller = f"{HOST}:{self.ports.controller}"
        return {
            **_PROPERTIES,
            "controller.quorum.voters": f"{CONTROLLER_ID}@{controller}",
            "listeners": f"{listeners},CONTROLLER://{controller}",
            "advertised.listeners": listeners,
            "log.dirs": str(self.directory / "data"),
        }

    def _write_configuration(self) -> Path:
        (self.directory / "log4j2.properties").write_text(_LOG4J)
        path = self.directory / "server.properties"
        lines = (f"{name}={value}\n" for name, value in self._properties().items())
        path.write_text("".join(lines))
        return path

    def _format(self, configuration: Path, timeout_s: float) -> None:
        if (self.directory / "data" / "meta.properties").exists():
            return
        command = [*self._java(), *_TOOL, "-t", self._cluster_id, "-c", str(configuration)]
        command += self._format_args
        with self.log_path.open("ab") as log:
            try:
                subprocess.run(
                    command, stdout=log, stderr=subprocess.STDOUT, timeout=timeout_s, check=True
                )
            except subprocess.SubprocessError as error:
                # Without the command, which may contain passwords.
                message = f"cannot format the broker's storage:\n{self.log_end()}"
                raise BrokerFailed(message) from error

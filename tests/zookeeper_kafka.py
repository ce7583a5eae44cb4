"""The oldest broker that is supported: Kafka 2.1, which keeps its metadata in ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sparklag_jobs.broker.child_process import ChildProcess, free_ports
from sparklag_jobs.broker.maven import Module, resolve_jars
from tests.child_processes import Startable
from tests.local_servers import HOST, java_command
from tests.waiting import wait_until_up

OLDEST_VERSION: Final = "2.1.1"

_START_S: Final = 240.0
_LOG4J: Final = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d %p %c{1}: %m%n
"""
_PROPERTIES: Final = {
    "broker.id": "1",
    "zookeeper.connection.timeout.ms": str(int(_START_S * 1000)),
    "zookeeper.session.timeout.ms": "60000",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": str(4 * 1024 * 1024),
}


def zookeeper_kafka_jars() -> list[Path]:
    return resolve_jars(
        [
            Module("org.apache.kafka", "kafka_2.12", OLDEST_VERSION),
            # Its own, 3.4, cannot connect on Java 14 or newer.
            Module("org.apache.zookeeper", "zookeeper", "3.5.9"),
        ]
    )


class ZooKeeperKafka(Startable):
    """One broker with its ZooKeeper on free loopback ports, its data in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        port, self._zookeeper_port = free_ports(2)
        self.bootstrap_servers = f"{HOST}:{port}"
        self._processes: list[ChildProcess] = []

    def start(self) -> None:
        (self._folder / "log4j.properties").write_text(_LOG4J)
        zookeeper = {
            "dataDir": str(self._folder / "zookeeper"),
            "clientPort": str(self._zookeeper_port),
            "clientPortAddress": HOST,
            "admin.enableServer": "false",
        }
        broker = {
            **_PROPERTIES,
            "zookeeper.connect": f"{HOST}:{self._zookeeper_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "log.dirs": str(self._folder / "data"),
        }
        # The broker tries again until ZooKeeper answers.
        self._run("zookeeper", "org.apache.zookeeper.server.quorum.QuorumPeerMain", zookeeper)
        process = self._run("broker", "kafka.Kafka", broker)
        # A client that asks before there is a controller waits a minute for it, and fails.
        ready = ("[KafkaServer id=1] started", "] Starting the controller scheduler")
        wait_until_up([process], lambda: all(map(process.has_logged, ready)), _START_S)

    def _run(self, name: str, main: str, properties: Mapping[str, str]) -> ChildProcess:
        path = self._folder / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        log4j = f"-Dlog4j.configuration=file:{self._folder / 'log4j.properties'}"
        command = java_command(zookeeper_kafka_jars(), log4j, main, str(path))
        process = ChildProcess(name, command, log_path=self._folder / f"{name}.log")
        self._processes.append(process)
        process.start()
        return process

    def close(self) -> None:
        # The broker before its ZooKeeper, without which it does not end.
        while self._processes:
            self._processes.pop().stop()

"""A real Kafka broker on this machine, for the demo and for tests."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sparklag_pipeline.broker.broker_answer import broker_answers
from sparklag_pipeline.broker.broker_properties import (
    CONTROLLER_ID,
    LOGGING,
    Ports,
    broker_properties,
    formatted_cluster_id,
    new_cluster_id,
    scram_properties,
)
from sparklag_pipeline.broker.child_process import STOP_TIMEOUT_S, ChildProcess, log_end
from sparklag_pipeline.broker.free_ports import free_ports
from sparklag_pipeline.broker.java import find_java
from sparklag_pipeline.broker.maven import kafka_jars
from sparklag_pipeline.broker.startable import Startable
from sparklag_pipeline.errors import BrokerFailed

HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 180.0  # a busy machine takes long

_JVM_OPTIONS: Final = ("-Xms64m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_STARTED: Final = "Kafka Server started"
_PORT_ATTEMPTS: Final = 5


class LocalKafka(Startable):
    """One Kafka node, broker and controller, on free loopback ports.

    Or one more broker of a cluster: of the node that it `joins`, which has started and stays its
    controller, as `node_id`.

    As a context manager it is started on entry; on exit it is stopped and its own data are gone.
    `stop` and `kill` keep ports and data, so that `start` and `restart` bring back the same
    broker. It dies with its owner (see ChildProcess).

    The client listener is `bootstrap_servers`, with `security_protocol`; a second one,
    `internal_servers`, is always PLAINTEXT, so that a test may administer a secured broker.
    `scram_users` (name to password) may log in by SCRAM-SHA-256 and SCRAM-SHA-512.
    `properties` override the broker's own; listener settings go by `listener.name.client.`.
    `format_args` are passed to Kafka's storage tool. With `directory` the files are there, stay,
    and are taken up again by the next broker; else they are in a temporary folder. `advertised`
    is the host:port clients are sent to, for a proxy in between.
    """

    def __init__(
        self,
        *,
        properties: Mapping[str, str] | None = None,
        auto_create_topics: bool = False,
        security_protocol: str = "PLAINTEXT",
        scram_users: Mapping[str, str] | None = None,
        format_args: Sequence[str] = (),
        advertised: str | None = None,
        directory: Path | None = None,
        cache_dir: Path | None = None,
        joins: LocalKafka | None = None,
        node_id: int = CONTROLLER_ID,
    ) -> None:
        if (joins is None) != (node_id == CONTROLLER_ID):
            raise ValueError(f"node {CONTROLLER_ID} is the controller, and the others join it")
        self._joins = joins
        self._node_id = node_id
        self._properties = {"auto.create.topics.enable": str(auto_create_topics).lower()}
        if scram_users:
            self._properties |= scram_properties()
        self._properties |= properties or {}
        self._security_protocol = security_protocol
        self._format_args = [
            *(
                f"--add-scram={mechanism}=[name={name},password={password}]"
                for name, password in (scram_users or {}).items()
                for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            ),
            *format_args,
        ]
        self._advertised = advertised
        self._directory = directory
        self._owns_directory = directory is None
        self._cache_dir = cache_dir
        self._cluster_id: str = new_cluster_id() if joins is None else joins._cluster_id
        self._ports: Ports | None = None
        self._process: ChildProcess | None = None

    @property
    def bootstrap_servers(self) -> str:
        """host:port of the client listener. Raises BrokerFailed before the first start."""
        return f"{HOST}:{self._known_ports().client}"

    @property
    def internal_servers(self) -> str:
        """host:port of the listener that is always PLAINTEXT."""
        return f"{HOST}:{self._known_ports().internal}"

    @property
    def directory(self) -> Path:
        """Where its configuration, data and log are."""
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="sparklag-kafka-"))
        return self._directory

    @property
    def log_path(self) -> Path:
        return self.directory / "broker.log"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise BrokerFailed("the broker was not started")
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether its process runs; also a frozen one does."""
        return self._process is not None and self._process.is_alive()

    def describe_end(self) -> str:
        """How its process ended, and the last lines of its log."""
        if self._process is None:
            return "the broker was not started"
        return self._process.describe_end()

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the broker and return once it answers.

        The first start takes free ports, and others where one is taken in the meantime. Raises
        JavaMissing, DownloadFailed, BrokerFailed (with the end of the log).
        """
        if self.is_alive():
            return
        deadline = time.monotonic() + timeout_s
        # The client listener's place is known before only where it was started before.
        first_start = self._ports is None
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            if self._ports is None:
                self._ports = Ports(*free_ports(len(Ports._fields)))
            log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
            try:
                self._start_once(deadline, log_start)
                return
            except BrokerFailed:
                taken = self._logged("Address already in use", since=log_start)
                if not (first_start and taken and attempt < _PORT_ATTEMPTS):
                    raise
                self._ports = None

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop it, keeping ports and data; after `timeout_s` by SIGKILL. Idempotent."""
        if self._process is not None:
            self._process.stop(timeout_s)

    def kill(self) -> None:
        """End it at once, as a crash would (SIGKILL). Ports and data stay."""
        if self._process is not None:
            self._process.kill()

    def restart(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Stop it if it runs, and start it on the same ports and data."""
        self.stop()
        self.start(timeout_s)

    def freeze(self) -> None:
        """Hold it (SIGSTOP): connections stay open, and nothing is answered until `thaw`."""
        if self._process is not None:
            self._process.freeze()

    def thaw(self) -> None:
        """Let a frozen broker go on."""
        if self._process is not None:
            self._process.thaw()

    def close(self) -> None:
        """Stop it and remove its folder, if that is its own. Idempotent."""
        self.stop()
        atexit.unregister(self.close)
        if self._owns_directory and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _known_ports(self) -> Ports:
        if self._ports is None:
            raise BrokerFailed("the broker has no address before it is started")
        return self._ports

    @property
    def _controller(self) -> str | None:
        """host:port of the controller, where that is another node."""
        return None if self._joins is None else f"{HOST}:{self._joins._known_ports().controller}"

    def _start_once(self, deadline: float, log_start: int) -> None:
        jars = kafka_jars(self._cache_dir)
        self.directory.mkdir(parents=True, exist_ok=True)
        configuration = self._write_configuration()
        known_as = formatted_cluster_id(self.directory / "data")
        if known_as is not None:
            self._cluster_id = known_as
        else:
            self._format(jars, configuration, max(1.0, deadline - time.monotonic()))
        self._process = ChildProcess(
            "the Kafka broker",
            [*self._java(jars), "kafka.Kafka", str(configuration)],
            log_path=self.log_path,
        )
        atexit.register(self.close)
        self._process.start()
        # It may answer at one listener and then die because another's port is taken: only its own
        # word says that all are open.
        while not (
            self._logged(_STARTED, since=log_start)
            and broker_answers(self.internal_servers, self._cluster_id)
        ):
            if not self._process.is_alive():
                raise BrokerFailed(self._process.describe_end())
            if time.monotonic() > deadline:
                self._process.kill()
                raise BrokerFailed(f"the Kafka broker does not answer:\n{self._process.log_end()}")
            time.sleep(0.1)

    def _java(self, jars: Sequence[Path]) -> list[str]:
        return [
            str(find_java()),
            *_JVM_OPTIONS,
            f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}",
            "-cp",
            f"{jars[0].parent}/*",
        ]

    def _write_configuration(self) -> Path:
        (self.directory / "log4j2.properties").write_text(LOGGING)
        ports = self._known_ports()
        settings = broker_properties(
            host=HOST,
            ports=ports,
            data_dir=self.directory / "data",
            security_protocol=self._security_protocol,
            advertised=self._advertised or f"{HOST}:{ports.client}",
            overrides=self._properties,
            node_id=self._node_id,
            controller=self._controller,
        )
        path = self.directory / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path

    def _format(self, jars: Sequence[Path], configuration: Path, timeout_s: float) -> None:
        command = [*self._java(jars), "kafka.tools.StorageTool", "format", "--ignore-formatted"]
        command += ["-t", self._cluster_id, "-c", str(configuration), *self._format_args]
        with self.log_path.open("ab") as log:
            try:
                subprocess.run(
                    command, stdout=log, stderr=subprocess.STDOUT, timeout=timeout_s, check=True
                )
            except subprocess.SubprocessError as error:
                # Not the command itself: it may hold passwords.
                raise BrokerFailed(
                    f"cannot format the broker's storage:\n{log_end(self.log_path)}"
                ) from error

    def _logged(self, text: str, *, since: int) -> bool:
        with self.log_path.open("rb") as log:
            log.seek(since)
            return text.encode() in log.read()

"""The local broker with what tests need: other properties, logins, several nodes, a restart."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from scripts.class_data import kafka_class_data
from sparklag_jobs.broker import local_kafka
from sparklag_jobs.broker.local_kafka import CONTROLLER_ID, HOST, START_TIMEOUT_S
from tests.child_processes import Startable, freeze, thaw

# Logins on the client listener, by the users that formatting the storage has created.
_SCRAM_LOGIN: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_SCRAM_PROPERTIES: Final = {
    "listener.name.client.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.client.scram-sha-256.sasl.jaas.config": _SCRAM_LOGIN,
    "listener.name.client.scram-sha-512.sasl.jaas.config": _SCRAM_LOGIN,
}


class LocalKafka(local_kafka.LocalKafka, Startable):
    """As a context manager it is started on entry; on exit it is stopped and its data are removed.

    With `joins` it is one more broker, `node_id`, of the cluster of that started node, which stays
    the controller.

    The client listener has `security_protocol`, and `internal_servers` none. `scram_users` (name to
    password) may log in by SCRAM-SHA-256 and SCRAM-SHA-512. `properties` override the broker's own;
    listener settings go by `listener.name.client.`. `format_args` are passed to Kafka's storage
    tool. A `directory` that is given is kept; the default is a temporary one. `advertised` is the
    host:port clients are sent to, for a proxy in between.
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
        joins: LocalKafka | None = None,
        node_id: int = CONTROLLER_ID,
    ) -> None:
        if (joins is None) != (node_id == CONTROLLER_ID):
            raise ValueError(f"node {CONTROLLER_ID} is the controller, and the others join it")
        self._owns_directory = directory is None
        super().__init__(directory or Path(tempfile.mkdtemp(prefix="sparklag-kafka-")))
        self._joins = joins
        self._node_id = node_id
        self._overrides = {
            "listener.security.protocol.map": (
                f"CLIENT:{security_protocol},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "auto.create.topics.enable": str(auto_create_topics).lower(),
            **(_SCRAM_PROPERTIES if scram_users else {}),
            **(properties or {}),
        }
        self._format_args = [
            *(
                f"--add-scram={mechanism}=[name={name},password={password}]"
                for name, password in (scram_users or {}).items()
                for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            ),
            *format_args,
        ]
        self._advertised = advertised
        if joins is not None:
            self._cluster_id = joins._cluster_id

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        atexit.register(self.close)
        self.jvm_options = self.jvm_options or kafka_class_data().options()
        super().start(timeout_s)

    def restart(self) -> None:
        """Stop it if it runs, and start it on the same ports and data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop it, and remove the directory if it is temporary. Idempotent."""
        self.stop()
        atexit.unregister(self.close)
        if self._owns_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def freeze(self) -> None:
        freeze(self)

    def thaw(self) -> None:
        thaw(self)

    def _properties(self) -> dict[str, str]:
        properties = super()._properties()
        internal = f"INTERNAL://{self.internal_servers}"
        if self._advertised is not None:
            properties["advertised.listeners"] = f"CLIENT://{self._advertised},{internal}"
        if self._joins is not None:
            controller = f"{HOST}:{self._joins.ports.controller}"
            properties |= {
                "process.roles": "broker",
                "node.id": str(self._node_id),
                "controller.quorum.voters": f"{CONTROLLER_ID}@{controller}",
                "listeners": f"CLIENT://{self.bootstrap_servers},{internal}",
            }
        return properties | self._overrides

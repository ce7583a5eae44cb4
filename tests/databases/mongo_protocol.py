"""The MongoDB-protocol server: mongo-java-server on a file of H2. It is not MongoDB."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path
from py4j.protocol import Py4JError

from sparklag_jobs.broker.maven import Module, find_java, resolve_jars
from tests.databases.server import HOST, DatabaseServer
from tests.waiting import DEADLINE_S, wait_until_up

_JVM_OPTIONS: Final = ("-Xms64m", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_COMMIT_DELAY_MS: Final = 1
_GATEWAY: Final = re.compile(r"^(\d+)\n(\S+)\n", re.MULTILINE)
"""The first output of Py4J's gateway: its port, and the token it expects."""


def mongo_protocol_jars() -> list[Path]:
    return resolve_jars(
        [
            Module("de.bwaldvogel", "mongo-java-server-h2-backend", "1.47.0"),
            # Without a binding it logs nothing.
            Module("org.slf4j", "slf4j-simple", "2.0.17"),
        ]
    )


class MongoProtocolServer(DatabaseServer):
    """It knows no users: its URLs have none. Databases are made by being written to.

    Its own program knows no other port than MongoDB's; so it is put together over Py4J in a Java
    that runs Py4J's gateway and nothing else.

    It answers some milliseconds before a write is in its file. `kill` closes the connections and
    the file before it kills, so that what was answered outlives it as in other servers; a SIGKILL
    from elsewhere, or the `kill` of a frozen one, loses the last of it.
    """

    name = "the MongoDB-protocol server"
    scheme = "mongodb"
    default_database = "sparklag"

    def __init__(self) -> None:
        super().__init__()
        self._gateway: JavaGateway | None = None
        self._server: Any = None

    def database_url(self, database: str, *, password: str = "") -> str:
        assert not password, f"{self.name} knows no passwords"
        return f"{self.scheme}://{HOST}:{self.port}/{database}"

    def connect(self) -> Any:
        import pymongo

        return pymongo.MongoClient(
            HOST, self.port, serverSelectionTimeoutMS=5000, connectTimeoutMS=5000
        )

    def _prepare(self) -> None:
        self._jars = [*mongo_protocol_jars(), Path(find_jar_path())]

    def _command(self) -> Sequence[str]:
        class_path = ":".join(str(jar) for jar in self._jars)
        gateway = ["py4j.GatewayServer", "--enable-auth", "0"]
        return [str(find_java()), *_JVM_OPTIONS, "-cp", class_path, *gateway]

    def _after_start(self) -> None:
        port, token = self._gateway_address()
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(
                port=port,
                auth_token=token,
                auto_convert=True,
                # It ends long after its caller is gone.
                enable_memory_management=False,
            )
        )
        jvm = self._gateway.jvm
        store = jvm.org.h2.mvstore.MVStore.open(str(self.data))
        # How long it may take until a write is in the file; a second by default.
        store.setAutoCommitDelay(_COMMIT_DELAY_MS)
        backend = jvm.de.bwaldvogel.mongo.backend.h2.H2Backend(store)
        self._server = jvm.de.bwaldvogel.mongo.MongoServer(backend)
        self._server.bind(HOST, self.port)

    def _before_end(self) -> None:
        # First nobody hears from it any more, then it writes what it has answered.
        gateway, self._gateway = self._gateway, None
        if gateway is None:
            return
        if not self._is_frozen:
            with contextlib.suppress(Py4JError, OSError):
                self._server.shutdownNow()
        gateway.close()

    def _gateway_address(self) -> tuple[int, str]:
        assert self._process is not None
        process = self._process

        def reports() -> re.Match[str] | None:
            return _GATEWAY.search(process.log_path.read_text(errors="replace"), self._log_start)

        wait_until_up([process], lambda: reports() is not None, DEADLINE_S)
        message = reports()
        assert message is not None
        return int(message[1]), message[2]

    def _answers(self) -> bool:
        import pymongo

        with self.connect() as client:
            try:
                client.admin.command("ping")
            except pymongo.errors.PyMongoError:
                return False
        return True

    def _create_database(self, database: str) -> None:
        return

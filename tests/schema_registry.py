"""A real schema registry for tests: Apicurio, which speaks Confluent's API, in memory."""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final

from sparklag_pipeline.child_process import ChildProcess
from sparklag_pipeline.java import find_java
from sparklag_pipeline.maven import Module, default_cache_dir, resolve_jars
from sparklag_pipeline.startable import Startable
from tests.free_ports import free_port

_APICURIO: Final = Module(
    "io.apicurio", "apicurio-registry-app", "2.6.13.Final", archive="all.tar.gz"
)
_JVM_OPTIONS: Final = ("-Xms64m", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_START_S: Final = 180.0


class SchemaRegistryServer(Startable):
    """What is registered is gone with it, and when it is stopped."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="sparklag-registry-"))
        self._port = free_port()
        self._process: ChildProcess | None = None

    @property
    def url(self) -> str:
        """Of Confluent's API."""
        return f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def start(self) -> None:
        (runner,) = _unpacked().glob("*-runner.jar")
        self._process = ChildProcess(
            "schema registry",
            [
                str(find_java()),
                *_JVM_OPTIONS,
                "-Dquarkus.http.host=127.0.0.1",
                f"-Dquarkus.http.port={self._port}",
                "-jar",
                str(runner),
            ],
            log_path=self._folder / "registry.log",
        )
        self._process.start()
        deadline = time.monotonic() + _START_S
        while not self._answers():
            assert self._process.is_alive(), self._process.describe_end()
            assert time.monotonic() < deadline, self._process.log_end()
            time.sleep(0.1)

    def stop(self) -> None:
        """End it; `start` begins with nothing, at the same address."""
        if self._process is not None:
            self._process.stop()

    def freeze(self) -> None:
        """Hold it: connections stay open, and nothing is answered until `thaw`."""
        assert self._process is not None
        self._process.freeze()

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.thaw()

    def close(self) -> None:
        """Idempotent."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def register(self, subject: str, schema: Any, kind: str = "AVRO") -> int:
        """The id of a schema that is registered past our client."""
        body = {"schema": schema if isinstance(schema, str) else json.dumps(schema)}
        answer = self.ask(
            f"/subjects/{urllib.parse.quote(subject, safe='')}/versions",
            {**body, "schemaType": kind},
        )
        return int(answer["id"])

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """What it answers, without our client."""
        request = urllib.request.Request(
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/vnd.schemaregistry.v1+json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def _answers(self) -> bool:
        try:
            self.ask("/subjects")
        except (OSError, ValueError):
            return False
        return True


def _unpacked() -> Path:
    """The folder of what its archive holds."""
    (archive,) = resolve_jars([_APICURIO])
    target = default_cache_dir() / "unpacked" / archive.parent.name
    if not target.is_dir():
        target.parent.mkdir(exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=target.parent))
        try:
            with tarfile.open(archive) as packed:
                packed.extractall(scratch, filter="data")
            if not target.is_dir():
                # Only a whole one ever has the final name.
                scratch.rename(target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return target

"""A real schema registry for tests: Apicurio, which speaks Confluent's API, in memory."""

from __future__ import annotations

import json
import shutil
import tempfile
import urllib.parse
from pathlib import Path
from typing import Any, Final

import httpx

from sparklag_jobs.broker.maven import Module, default_cache_dir, find_java, resolve_jars
from tests.commands import run_command
from tests.local_servers import HOST, JVM_OPTIONS, LocalServer

_APICURIO: Final = Module(
    "io.apicurio", "apicurio-registry-app", "2.6.13.Final", archive="all.tar.gz"
)


class SchemaRegistryServer(LocalServer):
    """What is registered is gone with it, and when it is stopped."""

    name = "registry"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def _command(self) -> list[str]:
        (runner,) = unpacked_registry().glob("*-runner.jar")
        address = (f"-Dquarkus.http.host={HOST}", f"-Dquarkus.http.port={self._port}")
        return [str(find_java()), *JVM_OPTIONS, "-Xmx384m", *address, "-jar", str(runner)]

    def register(self, subject: str, schema: Any, kind: str = "AVRO") -> int:
        body = {"schema": schema if isinstance(schema, str) else json.dumps(schema)}
        answer = self.ask(
            f"/subjects/{urllib.parse.quote(subject, safe='')}/versions",
            {**body, "schemaType": kind},
        )
        return int(answer["id"])

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        headers = {"content-type": "application/vnd.schemaregistry.v1+json"}
        content = None if body is None else json.dumps(body)
        method = method or ("GET" if body is None else "POST")
        answer = httpx.request(
            method, self.url + path, content=content, headers=headers, timeout=30
        )
        return answer.raise_for_status().json()

    def _answers(self) -> bool:
        self.ask("/subjects")
        return True


def unpacked_registry() -> Path:
    (archive,) = resolve_jars([_APICURIO])
    target = default_cache_dir() / "unpacked" / archive.parent.name
    if not target.is_dir():
        target.parent.mkdir(exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=target.parent))
        try:
            # Not tarfile: not every patch release of Python keeps what it unpacks in the folder.
            command = ["tar", "-x", "--no-same-owner", "-f", str(archive), "-C", str(scratch)]
            if failure := run_command(command):
                raise OSError(f"{archive} was not unpacked: {failure}")
            if not target.is_dir():
                # Only a whole one ever has the final name.
                scratch.rename(target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return target

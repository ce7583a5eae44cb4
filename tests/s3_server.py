"""A real S3 server for tests: s3proxy on a folder. It checks signatures."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

import httpx

from sparklag_jobs.broker.maven import Module, resolve_jars
from sparklag_offsets.checkpoints import CheckpointReader
from tests.local_servers import LocalServer, java_command

KEY: Final = "local-identity"
SECRET: Final = "local-credential-of-tests"


def s3proxy_jars() -> list[Path]:
    return resolve_jars(
        [
            Module("org.gaul", "s3proxy", "4.1.0"),
            # What it is published with is not what it needs.
            Module("com.fasterxml.jackson.core", "jackson-annotations", "2.21"),
        ]
    )


class S3Server(LocalServer):
    name = "s3"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def storage(self, **options: Any) -> dict[str, dict[str, Any]]:
        return {"s3": {"endpoint_url": self.url, "key": KEY, "secret": SECRET, **options}}

    def client(self) -> Any:
        import s3fs

        return s3fs.S3FileSystem(
            **self.storage()["s3"], use_listings_cache=False, skip_instance_cache=True
        )

    def _command(self) -> list[str]:
        data = self._folder / "data"
        data.mkdir(exist_ok=True)
        configuration = self._folder / "s3proxy.conf"
        configuration.write_text(
            f"""
s3proxy.endpoint={self.url}
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={KEY}
s3proxy.credential={SECRET}
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={data}
"""
        )
        main = ("org.gaul.s3proxy.Main", "--properties", str(configuration))
        return java_command(s3proxy_jars(), *main)

    def _answers(self) -> bool:
        httpx.get(self.url, timeout=5)
        return True  # it refuses who does not sign


class RequestCounter:
    def __init__(self, reader: CheckpointReader) -> None:
        self._counted: Counter[str] = Counter()
        self.prefixes: set[str] = set()
        # Nothing but botocore's own events shows each request, tries anew included.
        filesystem = reader._files._store._opened()  # type: ignore[attr-defined]  # of a remote one
        filesystem.connect()
        events = filesystem.s3.meta.events
        events.register("before-parameter-build.s3", self._note)
        events.register("before-send.s3", self._count)

    def take(self) -> dict[str, int]:
        taken = dict(self._counted)
        self._counted.clear()
        return taken

    def _note(self, params: dict[str, Any], **_: Any) -> None:
        if "Delimiter" in params:
            self.prefixes.add(params["Prefix"])

    def _count(self, event_name: str, **_: Any) -> None:
        self._counted[event_name.rpartition(".")[2]] += 1

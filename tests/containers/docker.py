"""Docker, and the images that scripts/compose_test.sh has built, by the names in its variables."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

ROOT: Final = Path(__file__).parents[2]
_TIMEOUT_S: Final = 3000.0


def variable(name: str) -> str:
    assert name in os.environ, f"{name} is not set: `make compose-test` runs these tests"
    return os.environ[name]


def run(
    *command: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )


def docker(*arguments: str) -> str:
    done = run("docker", *arguments)
    assert done.returncode == 0, f"docker {' '.join(arguments[:4])}: {done.stdout[-4000:]}"
    return done.stdout


def compose(*arguments: str, profile: str = "secure") -> str:
    return docker("compose", "--profile", profile, *arguments)


def up(*services: str, profile: str) -> None:
    """Return when these and what they depend on are healthy, or have done their work."""
    done = run(
        *("docker", "compose", "--profile", profile, "up", "-d"),
        *("--wait", "--wait-timeout", "600", *services),
    )
    if done.returncode != 0:
        compose("ps", "-a", profile="*")
        logs = compose("logs", "--no-color", "--tail", "40", profile="*")
        raise AssertionError(f"{services} did not start:\n{done.stdout[-2000:]}\n{logs}")


def image(name: str) -> str:
    return variable(f"{name.upper()}_IMAGE")


def inspect(name: str) -> dict[str, Any]:
    (result,) = json.loads(docker("inspect", name))
    return dict(result)


def in_image(name: str, *arguments: str, options: tuple[str, ...] = ()) -> str:
    command = ("run", "--rm", "--network", "none", "--entrypoint", "python", *options)
    return docker(*command, image(name), *arguments)


def files_of(name: str) -> dict[str, tarfile.TarInfo]:
    container = docker("create", image(name)).strip()
    try:
        with _archive("export", container) as tree:
            return {member.name: member for member in tree}
    finally:
        docker("rm", container)


def compressed_size(name: str) -> int:
    """Bytes of the layers of an image, each compressed as a registry keeps it."""
    return sum(len(gzip.compress(layer, 6)) for layer in _layers(image(name)))


def contents(tag: str) -> set[tuple[object, ...]]:
    """All entries of all layers of an image: path, mode, owner, time, target of a link, digest."""
    entries: set[tuple[object, ...]] = set()
    for number, layer in enumerate(_layers(tag)):
        with tarfile.open(fileobj=io.BytesIO(layer)) as files:
            for file in files:
                digest = hashlib.sha256(_content(files, file).read()) if file.isfile() else None
                owner, hexdigest = (file.uid, file.gid), digest and digest.hexdigest()
                kind = (number, file.name, file.type, file.mode, owner, file.mtime, file.linkname)
                entries.add((*kind, hexdigest))
    return entries


def _layers(tag: str) -> Iterator[bytes]:
    with _archive("save", tag) as saved:
        for layer in json.loads(_content(saved, "manifest.json").read())[0]["Layers"]:
            yield _content(saved, layer).read()


@contextmanager
def _archive(*arguments: str) -> Iterator[tarfile.TarFile]:
    with tempfile.TemporaryFile() as output:
        subprocess.run(["docker", *arguments], stdout=output, timeout=_TIMEOUT_S, check=True)
        output.seek(0)
        with tarfile.open(fileobj=output) as archive:
            yield archive


def _content(archive: tarfile.TarFile, path: str | tarfile.TarInfo) -> IO[bytes]:
    content = archive.extractfile(path)
    assert content is not None, path
    return content

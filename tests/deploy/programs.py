"""Prometheus and Alertmanager: found on this machine, or taken out of Debian's packages.

The packages are unpacked into the cache and not installed: nothing is started, and nobody needs to
be root.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparklag_pipeline.maven import default_cache_dir
from tests.commands import run_command

_PACKAGES: Final = ("prometheus", "prometheus-alertmanager")


class ProgramsMissing(Exception):
    """They are not here and could not be got: the text is one line that says how to."""


@dataclass(frozen=True)
class Programs:
    """Where they are."""

    prometheus: Path
    promtool: Path
    alertmanager: Path
    amtool: Path


def prometheus_programs() -> Programs:
    """Those of this machine, else those in the cache, else unpacked there. Raises
    ProgramsMissing."""
    found = _found(os.get_exec_path())
    if found is not None:
        return found
    folder = default_cache_dir() / "prometheus"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        unpacked = folder / "unpacked"
        if not unpacked.exists():
            _unpack(folder, unpacked)
    found = _found([str(unpacked / "usr/bin")])
    if found is None:
        raise ProgramsMissing(f"Debian's packages {_PACKAGES} hold other programs than expected")
    return found


def _found(folders: list[str]) -> Programs | None:
    path = os.pathsep.join(folders)
    prometheus, promtool = (
        shutil.which("prometheus", path=path),
        shutil.which("promtool", path=path),
    )
    # Its own name, and Debian's.
    alertmanager = shutil.which("alertmanager", path=path) or shutil.which(
        "prometheus-alertmanager", path=path
    )
    amtool = shutil.which("amtool", path=path)
    if not (prometheus and promtool and alertmanager and amtool):
        return None
    return Programs(Path(prometheus), Path(promtool), Path(alertmanager), Path(amtool))


def _unpack(folder: Path, target: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ProgramsMissing(
            "prometheus, promtool, alertmanager and amtool are not on the PATH: install Prometheus"
            " and Alertmanager (https://prometheus.io/download)"
        )
    with tempfile.TemporaryDirectory(dir=folder) as name:
        downloads, unpacked = Path(name) / "packages", Path(name) / "unpacked"
        downloads.mkdir()
        download = ["apt-get", "download", "-q", *_PACKAGES]
        said = run_command(download, folder=downloads)
        if said is not None:
            # Its lists are empty, or too old.
            as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
            run_command([*as_root, "apt-get", "update", "-q"])
            said = run_command(download, folder=downloads)
        if said is not None:
            raise ProgramsMissing(f"apt-get download {' '.join(_PACKAGES)}: {said}")
        for package in sorted(downloads.glob("*.deb")):
            said = run_command(["dpkg-deb", "-x", str(package), str(unpacked)])
            if said is not None:
                raise ProgramsMissing(f"{package.name} cannot be unpacked: {said}")
        unpacked.rename(target)

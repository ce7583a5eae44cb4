"""Prometheus and Alertmanager: found on this machine, or taken out of Debian's packages."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.debian_packages import ProgramsMissing, unpacked_packages

_PACKAGES: Final = ("prometheus", "prometheus-alertmanager")


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
    unpacked = unpacked_packages(
        "prometheus",
        _PACKAGES,
        instead="install Prometheus and Alertmanager, with promtool and amtool"
        " (https://prometheus.io/download)",
    )
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

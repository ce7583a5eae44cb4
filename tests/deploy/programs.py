"""Prometheus and Alertmanager: installed on this machine, or taken out of Debian's packages."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from tests.commands import succeed
from tests.debian_packages import ProgramsMissing, unpacked_packages

_PACKAGES: Final = ("prometheus", "prometheus-alertmanager")
_BUILT_IN: Final = b"/usr/share/prometheus/alertmanager"
_RELATIVE: Final = b"usr//share/prometheus/alertmanager"


@dataclass(frozen=True)
class Programs:
    prometheus: Path
    promtool: Path
    alertmanager: Path
    amtool: Path
    root: Path | None = None
    """Where Alertmanager has to run: the folder they are unpacked in, if they are."""


def prometheus_programs() -> Programs:
    """Of this machine, of the cache, or unpacked there. Raises ProgramsMissing."""
    result = _detected(os.get_exec_path())
    if result is not None:
        return result
    unpacked = unpacked_packages(
        "prometheus",
        _PACKAGES,
        instead="install Prometheus and Alertmanager, with promtool and amtool"
        " (https://prometheus.io/download)",
    )
    folder = unpacked / "usr/bin"
    _let_it_find_its_templates(folder / "prometheus-alertmanager", folder / "alertmanager")
    result = _detected([str(folder)])
    if result is None:
        raise ProgramsMissing(f"Debian's packages {_PACKAGES} hold other programs than expected")
    return replace(result, root=unpacked)


def promtool(programs: Programs, *arguments: str | Path) -> str:
    return succeed(programs.promtool, *arguments)


def _let_it_find_its_templates(program: Path, relocated: Path) -> None:
    """Debian's Alertmanager does not start without its templates, and looks for them in a folder
    that no option names and only an installed package has. The copy has that folder relative to
    where it runs, in as many bytes."""
    if relocated.exists() or not program.exists():
        return
    with tempfile.NamedTemporaryFile(dir=program.parent, delete=False) as copy:
        copy.write(program.read_bytes().replace(_BUILT_IN, _RELATIVE))
    os.chmod(copy.name, 0o755)
    os.replace(copy.name, relocated)


def _detected(folders: list[str]) -> Programs | None:
    find = partial(shutil.which, path=os.pathsep.join(folders))
    # Its own name, and Debian's.
    alertmanager = find("alertmanager") or find("prometheus-alertmanager")
    result = (find("prometheus"), find("promtool"), alertmanager, find("amtool"))
    paths = [Path(each) for each in result if each]
    return Programs(*paths) if len(paths) == len(result) else None

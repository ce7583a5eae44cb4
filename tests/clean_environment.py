"""Environments that hold a locked set of packages and our distribution, and nothing else."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from subprocess import CompletedProcess

from uv import find_uv_bin

from tests import commands

ROOT = Path(__file__).parent.parent


# The tests' own environment must not reach into the clean ones.
_ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("PYTHON", "SPARKLAG_", "VIRTUAL_ENV"))
} | {"PYTHONDONTWRITEBYTECODE": "1"}


def run(*command: str | Path, cwd: Path | None = None) -> CompletedProcess[str]:
    return commands.run(*command, cwd=cwd, env=_ENVIRONMENT)


def succeed(*command: str | Path, cwd: Path | None = None) -> str:
    return commands.succeed(*command, cwd=cwd, env=_ENVIRONMENT)


class Environment:
    """A virtual environment with a locked set of packages and ours, nothing else."""

    def __init__(
        self, folder: Path, lock: str, distribution: Path, python: str = sys.executable
    ) -> None:
        self._uv = find_uv_bin()
        succeed(self._uv, "venv", "-q", "--no-project", "--python", python, folder)
        self.python = folder / "bin" / "python"
        self.command = folder / "bin" / "sparklag"
        self._install("--require-hashes", "-r", ROOT / "requirements" / lock)
        self.install(distribution)

    def install(self, distribution: Path) -> None:
        constraints = ("--build-constraints", ROOT / "requirements" / "build.txt")
        self._install("--no-deps", "--reinstall", *constraints, distribution)
        # Everything that it asks for is in the lock.
        succeed(self._uv, "pip", "check", "--python", self.python)

    def pip(self, command: str, folder: Path) -> None:
        """Run a `pip install` that the reader of a page or message would, with locked versions."""
        locked = ("-c", ROOT / "requirements/service.txt", "-b", ROOT / "requirements/build.txt")
        self._install(*locked, *shlex.split(command)[2:], cwd=folder)

    def _install(self, *arguments: str | Path, cwd: Path | None = None) -> None:
        succeed(self._uv, "pip", "install", "-q", "--python", self.python, *arguments, cwd=cwd)

"""Programs out of packages that nothing else is installed with: each lock an environment, got once
into the cache."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from uv import find_uv_bin

from sparklag_jobs.broker.maven import default_cache_dir

_REQUIREMENTS: Final = Path(__file__).parents[1] / "requirements"
_BUILD_S: Final = 600.0


def locked_environment(name: str) -> Path:
    """The environment of `requirements/NAME.txt`. Safe when several processes ask at once."""
    lock = _REQUIREMENTS / f"{name}.txt"
    digest = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = default_cache_dir() / "environments" / f"{name}-{digest}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not (folder / "complete").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            uv, python = find_uv_bin(), str(folder / "bin" / "python")
            _succeed(uv, "venv", "-q", "--no-project", "--python", sys.executable, str(folder))
            _succeed(uv, "pip", "sync", "-q", "--python", python, "--require-hashes", str(lock))
            (folder / "complete").touch()
    return folder


def _succeed(*command: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_BUILD_S, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr

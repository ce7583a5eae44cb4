"""Programs that run to their end, and what they write."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_DEADLINE_S: Final = 900.0


def run(
    *command: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 300.0,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )


def succeed(*command: str | Path, **options: Any) -> str:
    """Its standard output. Raises AssertionError with all that it wrote where it fails."""
    done = run(*command, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_command(
    command: Sequence[str],
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str | None:
    """None where it did well, else its last line. `environment`: besides this one's."""
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"} | dict(environment or {})
    try:
        done = run(*command, cwd=folder, env=env, timeout_s=_DEADLINE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"

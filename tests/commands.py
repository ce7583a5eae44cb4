"""Programs that are run for what they do, not for what they say."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_DEADLINE_S: Final = 900.0


def run_command(
    command: Sequence[str],
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str | None:
    """None where it did well, else the last line it said. `environment`: besides this one's."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"} | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    return (done.stdout.strip().splitlines() or [f"exit code {done.returncode}"])[-1]

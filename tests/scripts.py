"""Small Python programs, run as processes of their own: for what happens when a process ends."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Ended:
    """How a program ended, and what it wrote."""

    exit_code: int
    lines: list[str]
    errors: str


def run_script(text: str, timeout_s: float = 240.0) -> Ended:
    """Run `text` as a program, warnings as errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    return Ended(done.returncode, done.stdout.splitlines(), done.stderr)

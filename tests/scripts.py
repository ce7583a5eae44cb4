"""Small Python programs, run as processes of their own: for what happens when a process ends."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass

from tests.commands import run


@dataclass(frozen=True)
class Ended:
    """How a program ended, and what it wrote."""

    exit_code: int
    lines: list[str]
    errors: str


def run_script(text: str, timeout_s: float = 240.0) -> Ended:
    """Run `text` as a program, warnings as errors."""
    program = ("-W", "error", "-c", textwrap.dedent(text))
    done = run(sys.executable, *program, timeout_s=timeout_s)
    return Ended(done.returncode, done.stdout.splitlines(), done.stderr)

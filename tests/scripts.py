"""Small Python programs, run as processes of their own: for what happens when a process ends."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Final

from tests.commands import run

_ROOT: Final = Path(__file__).parents[1]


@dataclass(frozen=True)
class Ended:
    exit_code: int
    lines: list[str]
    errors: str


@contextmanager
def running_script(text: str) -> Iterator[tuple[Popen[str], str]]:
    command = [sys.executable, "-c", textwrap.dedent(text)]
    with Popen(command, stdout=PIPE, stderr=DEVNULL, text=True, cwd=_ROOT) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def run_script(text: str, timeout_s: float = 240.0) -> Ended:
    program = ("-W", "error", "-c", textwrap.dedent(text))
    done = run(sys.executable, *program, timeout_s=timeout_s)
    return Ended(done.returncode, done.stdout.splitlines(), done.stderr)

"""Commands on a real terminal of a chosen size, and in a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from typing import NamedTuple

from tests.commands import run
from tests.waiting import DEADLINE_S

WIDTHS = (60, 80, 120)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Shown(NamedTuple):
    returncode: int
    lines: list[str]
    stderr: str

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "sparklag_service", *arguments]


def environment() -> dict[str, str]:
    """This one's, but for what sets a width, colours or sparklag."""
    names = ("SPARKLAG_", "COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    return kept | {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}


def on_terminal(columns: int, program: Sequence[str]) -> Shown:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(
        program, stdin=slave, stdout=slave, stderr=subprocess.PIPE, env=environment(), text=True
    ) as process:
        os.close(slave)
        written = b""
        try:
            # Linux ends a terminal that nobody has open any more with EIO.
            while chunk := os.read(master, 65_536):
                written += chunk
        except OSError:
            pass
        finally:
            os.close(master)
        _, stderr = process.communicate(timeout=DEADLINE_S)
    lines = _COLOUR.sub("", written.decode()).splitlines()
    return Shown(process.returncode, [line.rstrip() for line in lines], stderr)


def piped(program: Sequence[str]) -> Shown:
    done = run(*program, env=environment())
    return Shown(done.returncode, done.stdout.splitlines(), done.stderr)


def large_numbers(text: str) -> set[str]:
    """The numbers in it that have a comma: those that a narrow column would cut."""
    return {number for number in re.findall(r"[\d,]*\d", text) if "," in number}

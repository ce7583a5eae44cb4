"""What the pipeline's tests share."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def wait_for(condition: Callable[[], bool], *, timeout_s: float, what: str) -> None:
    """Return once the condition holds; fail, saying what was waited for, after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"after {timeout_s} s still not: {what}"
        time.sleep(0.05)


def process_is_gone(pid: int) -> bool:
    """Whether no process has this id; one that ended and waits to be reaped counts as gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"

"""Processes of this machine, by their ids."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path


def process_is_gone(pid: int) -> bool:
    """Whether no process has this id; one that ended and waits to be reaped counts as gone."""
    return _state_and_parent(pid) is None


def descendants(pid: int) -> list[int]:
    """What it started, and what these did, whatever sessions they are in."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        found = _state_and_parent(int(folder.name))
        if found is not None:
            children.setdefault(found[1], []).append(int(folder.name))
    all_of_them: list[int] = []
    unseen = [pid]
    while unseen:
        started = children.get(unseen.pop(), [])
        all_of_them += started
        unseen += started
    return all_of_them


def signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    """To those of them that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _state_and_parent(pid: int) -> tuple[str, int] | None:
    """None where it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Before that is its name, which may hold anything.
    state, parent, *_ = stat.rpartition(")")[2].split()
    return None if state == "Z" else (state, int(parent))

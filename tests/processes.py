"""Processes of this machine, by their ids."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


def process_is_gone(pid: int) -> bool:
    return _stat(pid) is None


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for number in _all():
        result = _stat(number)
        if result is not None:
            children.setdefault(result.parent, []).append(number)
    all_of_them: list[int] = []
    unseen = [pid]
    while unseen:
        started = children.get(unseen.pop(), [])
        all_of_them += started
        unseen += started
    return all_of_them


def session_members(session: int) -> list[int]:
    """The processes of the session that this process began, itself too where it still runs."""
    return [
        pid for pid in _all() if (result := _stat(pid)) is not None and result.session == session
    ]


def processes_naming(text: str) -> list[int]:
    result = []
    for pid in _all():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if text.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                result.append(pid)
    return result


def maps_file(pid: int, path: Path) -> bool:
    return str(path) in Path(f"/proc/{pid}/maps").read_text()


def signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def in_background(command: Sequence[str]) -> list[str]:
    """The command as a shell without job control starts it with `&`, or `nohup`."""
    return ["sh", "-c", "trap '' INT QUIT HUP; exec \"$@\"", "sh", *command]


def in_foreground(command: Sequence[str]) -> list[str]:
    """The command as a terminal's shell starts it, though `nohup` started this run."""
    return ["env", "--default-signal=INT,QUIT,HUP", *command]


def ignored_signals(pid: int) -> set[signal.Signals]:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(status.partition("SigIgn:")[2].split()[0], 16)
    return {each for each in signal.Signals if mask >> (each - 1) & 1}


def _all() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


class _Stat(NamedTuple):
    parent: int
    session: int


def _stat(pid: int) -> _Stat | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Before that is its name, which may hold anything.
    state, parent, _, session, *_ = stat.rpartition(")")[2].split()
    return None if state == "Z" else _Stat(int(parent), int(session))

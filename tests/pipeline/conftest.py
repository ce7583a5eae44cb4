"""What the pipeline's tests share."""

from __future__ import annotations

from pathlib import Path


def process_is_gone(pid: int) -> bool:
    """Whether no process has this id; one that ended and waits to be reaped counts as gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"

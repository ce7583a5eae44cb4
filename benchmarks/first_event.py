"""How long a newcomer waits: from `git clone` to the first lag event, packages being cached.

Clones this repository as it is committed, runs `make demo` there, and takes all of it away again.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.comparison import Row, say
from sparklag_jobs.broker.child_process import ChildProcess

REACH_S: Final = 120.0
_REPOSITORY: Final = Path(__file__).parents[1]
_SHOWN_S: Final = 15
_DEADLINE_S: Final = 600.0
_POLL_S: Final = 0.1

_DEMO_LINE: Final = re.compile(r"^ *(\d+\.\d) s  ", re.MULTILINE)
_SUMMARY: Final = re.compile(r"the first lag\s+after (\d+\.\d) s")


@dataclass(frozen=True)
class _Waited:
    """Seconds."""

    clone_s: float
    set_up_s: float
    demo_s: float

    @property
    def total_s(self) -> float:
        return self.clone_s + self.set_up_s + self.demo_s


def run() -> list[Row]:
    """A row with the whole wait and its parts."""
    with tempfile.TemporaryDirectory() as folder:
        waited = _wait_for_first_event(Path(folder))
    return [
        Row(
            "clone → first lag event, packages cached",
            f"{waited.total_s:.0f} s",
            f"clone {waited.clone_s:.1f} s, set-up {waited.set_up_s:.0f} s,"
            f" demo {waited.demo_s:.0f} s",
            reach=f"< {REACH_S:g} s",
            reached=waited.total_s < REACH_S,
        )
    ]


def _wait_for_first_event(folder: Path) -> _Waited:
    clone, log_path = folder / "sparklag", folder / "demo.log"
    say("first_event: clone, set-up and demo")
    began_s = time.monotonic()
    # By address, as from elsewhere: a local clone would only link the files.
    subprocess.run(["git", "clone", "-q", _REPOSITORY.as_uri(), clone], check=True)
    cloned_s = time.monotonic()
    demo = ChildProcess(
        "make demo",
        ["make", "demo", f"ARGS=--seconds {_SHOWN_S}"],
        log_path=log_path,
        directory=clone,
    )
    demo.start()
    try:
        started_s: float | None = None
        while demo.is_alive():
            if time.monotonic() - began_s > _DEADLINE_S:
                raise TimeoutError(f"no end of the demo after {_DEADLINE_S:g} s:\n{demo.log_end()}")
            line = None if started_s is not None else _DEMO_LINE.search(log_path.read_text())
            if line is not None:
                # The demo tells its own time: when it was 0 is when it began.
                started_s = time.monotonic() - float(line.group(1))
            time.sleep(_POLL_S)
    finally:
        demo.stop()
    summary = _SUMMARY.search(log_path.read_text())
    if demo.exit_code != 0 or started_s is None or summary is None:
        raise RuntimeError(demo.describe_end())
    return _Waited(cloned_s - began_s, started_s - cloned_s, float(summary.group(1)))

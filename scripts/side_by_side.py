"""Runs pytest twice at once: `side_by_side.py MARKERS MARKERS [PYTEST'S ARGUMENTS]`.

The tests on real parts wait most of their time, and one process leaves a core idle. What the second
run says is shown when both have ended. Exits 0 where neither failed and one of them found a test.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from types import FrameType
from typing import IO

_NO_TESTS = 5


def main() -> int:
    first, second, *arguments = sys.argv[1:]
    with tempfile.TemporaryFile() as said:
        beside = _start(second, arguments, said)
        runs = [_start(first, arguments), beside]

        def pass_on(number: int, frame: FrameType | None) -> None:
            for run in runs:
                run.send_signal(number)

        signal.signal(signal.SIGTERM, pass_on)
        # Ctrl-C reaches all of them: each run ends its own parts, and this one waits for it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        codes = [run.wait() for run in runs]
        said.seek(0)
        sys.stdout.write(f"\nbeside it: {second}\n")
        sys.stdout.write(said.read().decode(errors="replace"))
    failed = [code for code in codes if code not in (0, _NO_TESTS)]
    if not failed:
        return min(codes)
    # A run that a signal ended has that signal's number, negative.
    return failed[0] if failed[0] > 0 else 128 - failed[0]


def _start(
    markers: str, arguments: list[str], output: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-m", markers, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
    )


if __name__ == "__main__":
    sys.exit(main())

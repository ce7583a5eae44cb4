"""Exec a command that, on Linux, is killed when its parent process ends.

`python -I -S exec_with_parent.py PARENT_PID COMMAND...`: run by path, before any import.

A child must also end if its owner cannot clean up: `kill -9` leaves no time, and neither Kafka nor
a stopped JVM notices a closed pipe. The kernel's PR_SET_PDEATHSIG ends it. It is set here, after
the fork and before the exec, because `subprocess`'s preexec_fn may deadlock in an owner with
threads. On other systems this only runs the command.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # The parent may have died before the line above: no signal would follow.
        if os.getppid() != parent:
            sys.exit("the process that started this one is gone")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()

"""Runs a module as `python -m` does, without what Windows' Python lacks: MODULE [ARGUMENT ...].

There is no Windows to test on. What Python itself and numpy need here stays; paths, processes and
sockets are those of Linux.
"""

from __future__ import annotations

import asyncio
import os
import random  # noqa: F401  # it calls `register_at_fork`; the next two need names as well
import runpy
import signal
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401

MODULES = "curses fcntl grp pty pwd resource syslog termios tty"
OF_OS = (
    "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK fork getpgid killpg register_at_fork"
    " sched_getaffinity setsid statvfs"
)
OF_SIGNAL = "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGUSR1 SIGUSR2 alarm pause"

sys.modules.update(dict.fromkeys(MODULES.split()))  # type: ignore[arg-type]  # None: it cannot be imported
for module, names in ((os, OF_OS), (signal, OF_SIGNAL)):
    for name in names.split():
        vars(module).pop(name, None)
asyncio.SelectorEventLoop.add_signal_handler = asyncio.AbstractEventLoop.add_signal_handler  # type: ignore[method-assign]  # as there

if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)

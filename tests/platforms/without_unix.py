"""Runs a module as `python -m` does, without what Windows' Python lacks: MODULE [ARGUMENT ...].

There is no Windows to test on. What Python itself and numpy need here stays; paths, processes and
sockets are those of Linux.
"""

from __future__ import annotations

import asyncio
import os
import random  # noqa: F401  # it asks for `register_at_fork`, as the next one does
import runpy
import signal
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401

MODULES = ("curses", "fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
OF_OS = (
    *("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "fork", "getpgid", "killpg"),
    *("register_at_fork", "sched_getaffinity", "setsid", "statvfs"),
)
OF_SIGNAL = (
    *("SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP"),
    *("SIGUSR1", "SIGUSR2", "alarm", "pause", "pthread_sigmask", "setitimer"),
)

sys.modules.update(dict.fromkeys(MODULES))  # type: ignore[arg-type]
for module, names in ((os, OF_OS), (signal, OF_SIGNAL)):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
asyncio.SelectorEventLoop.add_signal_handler = (  # type: ignore[method-assign]
    asyncio.AbstractEventLoop.add_signal_handler
)

if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)

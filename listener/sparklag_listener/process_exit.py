"""Closes handles when the process ends, by the interpreter's exit or by SIGTERM."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Final

Close = Callable[[float], None]
"""Takes a timeout in seconds. Must not raise, and must be reentrant: a signal handler may call it
while it runs on the same thread."""


class ProcessExit:
    """By default SIGTERM ends Python at once, without `atexit`. So it is handled while a handle is
    open, unless the user handles it; only the main thread can set a handler."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._callbacks: list[Close] = []
        self.by_sigterm = False
        """Whether the process ends by SIGTERM now."""

    def register(self, close: Close) -> None:
        """Call `close` when the process ends."""
        if not self._callbacks:
            atexit.register(self._close_all)
        self._callbacks.append(close)
        if _in_main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def unregister(self, close: Close) -> None:
        """After the last one, exit and SIGTERM are handled as before."""
        if close in self._callbacks:
            self._callbacks.remove(close)
        if self._callbacks:
            return
        atexit.unregister(self._close_all)
        # == and not `is`: each access makes a new bound method.
        if _in_main_thread() and signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _close_all(self) -> None:
        deadline_s = time.monotonic() + self._timeout_s
        for close in list(self._callbacks):
            close(max(0.0, deadline_s - time.monotonic()))

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self.by_sigterm = True
        try:
            self._close_all()
        finally:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def unhandled_error() -> str | None:
    """The exception that ends this program, without its frames. None: there is none, or it is
    Ctrl-C, or the program is a prompt, which goes on after its errors."""
    error = getattr(sys, "last_value", None)
    if hasattr(sys, "ps1") or not isinstance(error, Exception):
        return None
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


CLOSE_TIMEOUT_S: Final = 5.0
process_exit: Final = ProcessExit(CLOSE_TIMEOUT_S)
"""One for the process, as there is one SIGTERM."""

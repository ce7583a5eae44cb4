"""Closes what is open when the process ends, by the interpreter's exit or by SIGTERM."""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

Close = Callable[[float], None]
"""Takes the seconds it has. Must not raise, and must cope with being called in a signal handler
while it is running already on the same thread."""


class ProcessEnd:
    """By default SIGTERM ends Python on the spot, without `atexit`. So as long as something is to
    be closed it is handled, unless somebody else handles it; only the main thread can do that."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._open: list[Close] = []

    def watch(self, close: Close) -> None:
        """Call `close` when the process ends."""
        if not self._open:
            atexit.register(self._close_all)
        self._open.append(close)
        if _in_main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def forget(self, close: Close) -> None:
        """It is closed. With the last one, exit and SIGTERM are as they were."""
        if close in self._open:
            self._open.remove(close)
        if self._open:
            return
        atexit.unregister(self._close_all)
        # == and not `is`: a bound method is made anew each time.
        if _in_main_thread() and signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _close_all(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        for close in list(self._open):
            close(max(0.0, deadline - time.monotonic()))

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        try:
            self._close_all()
        finally:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


CLOSE_TIMEOUT_S: Final = 5.0
process_end: Final = ProcessEnd(CLOSE_TIMEOUT_S)
"""One for the process: there is one SIGTERM."""

"""SIGINT, SIGTERM and SIGHUP: each ends the demo, once and in order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal came while the main thread was in a call that cannot be asked to return."""


class StopSignals:
    """Remembers that one came. Takes the signals over on creation, in the main thread."""

    def __init__(self) -> None:
        self.came = False
        self._interrupts = False
        for number in _NUMBERS:
            signal.signal(number, self._take)

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Inside, a signal raises Interrupted at once, one that came before too."""
        self._interrupts = True
        try:
            if self.came:
                raise Interrupted
            yield
        finally:
            self._interrupts = False

    def ignore(self) -> None:
        """Let nothing disturb the clean-up."""
        for number in _NUMBERS:
            signal.signal(number, signal.SIG_IGN)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        if self._interrupts:
            raise Interrupted

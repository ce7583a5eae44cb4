"""What tests do with child processes: start and close them as context managers, and freeze them."""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from typing import TypeVar

from sparklag_pipeline.broker.child_process import ChildProcess

_Self = TypeVar("_Self", bound="Startable")


class Startable(ABC):
    """A context manager: started on entry; closed on exit, and where the start fails."""

    @abstractmethod
    def start(self) -> None:
        """Return once it can be used."""

    @abstractmethod
    def close(self) -> None:
        """Stop it and remove what it owns. Idempotent."""

    def __enter__(self: _Self) -> _Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def freeze(process: ChildProcess) -> None:
    """SIGSTOP: until `thaw`, connections stay open and nothing is answered."""
    process.send_signal(signal.SIGSTOP)
    if hasattr(os, "waitid"):
        # Its threads do not all stop at once.
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def thaw(process: ChildProcess) -> None:
    """SIGCONT."""
    process.send_signal(signal.SIGCONT)

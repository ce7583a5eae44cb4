"""What tests do with child processes: start and close them as context managers, and freeze them."""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from sparklag_jobs.broker.child_process import ChildProcess
from tests.loop_guard import own_work

_Self = TypeVar("_Self", bound="Startable")


class Startable(ABC):
    """A context manager: started on entry; closed on exit, and where the start fails."""

    @abstractmethod
    def start(self) -> None:
        """Return once it can be used."""

    @abstractmethod
    def close(self) -> None:
        """Stop it and remove what it owns. Idempotent."""

    @own_work
    def __enter__(self: _Self) -> _Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@contextmanager
def running(process: ChildProcess) -> Iterator[ChildProcess]:
    process.start()
    try:
        yield process
    finally:
        process.kill()


def run_to_end(process: ChildProcess, timeout_s: float) -> str:
    """Its log. Fails where it does not end in time, with exit code 0."""
    with running(process):
        assert process.wait(timeout_s), f"{process.name} does not end:\n{process.log_end()}"
    assert process.exit_code == 0, process.describe_end()
    return process.log_path.read_text(errors="replace")


def freeze(process: ChildProcess) -> None:
    """SIGSTOP: until `thaw`, connections stay open and nothing is answered."""
    process.send_signal(signal.SIGSTOP)
    if hasattr(os, "waitid"):
        # Its threads do not all stop at once.
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def thaw(process: ChildProcess) -> None:
    process.send_signal(signal.SIGCONT)

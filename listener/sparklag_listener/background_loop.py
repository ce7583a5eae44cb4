"""An event loop on a daemon thread of the user's process, and closing handles at process exit."""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from types import FrameType
from typing import Any, Final, TypeVar

from sparklag_schemas import DriverEnd
from sparklag_schemas.runtime.daemon_threads import DaemonThreads

_Result = TypeVar("_Result")

_TASKS_END_S = 1.0
_STOP_S = 1.0
CLOSE_TIMEOUT_S: Final = 5.0


class BackgroundLoop:
    """Runs coroutines for threads without a loop. The interpreter exits without waiting for it.

    Blocking calls go to `asyncio.to_thread`: see DaemonThreads.
    """

    def __init__(self) -> None:
        # Windows' own loop has no `add_reader`, which psycopg needs.
        self._loop = asyncio.SelectorEventLoop()
        self._loop.set_default_executor(DaemonThreads())
        self._stopping = asyncio.Event()
        # A call while the loop stops would never run. Reentrant: a signal handler may close.
        self._lock = threading.RLock()
        self._is_open = True
        self._thread = threading.Thread(target=self._run, name="sparklag", daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Run `function` on the loop soon. RuntimeError once the loop is stopped."""
        with self._lock:
            self._require_open()
            self._loop.call_soon_threadsafe(function, *arguments)

    def submit(self, coroutine: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        """Run `coroutine` on the loop. RuntimeError once the loop is stopped."""
        with self._lock:
            try:
                self._require_open()
                return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            except RuntimeError:
                coroutine.close()
                raise

    def stop(self, timeout_s: float) -> bool:
        """Cancel all tasks and stop the loop. Returns whether it ended in time. Idempotent."""
        # RuntimeError: already stopped. The thread may still be running.
        with suppress(RuntimeError):
            self.call(self._stopping.set)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _require_open(self) -> None:
        if not self._is_open:
            raise RuntimeError("the loop is stopped")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._run_until_stopped())
        finally:
            self._loop.close()

    async def _run_until_stopped(self) -> None:
        await self._stopping.wait()
        with self._lock:
            self._is_open = False
        # Coroutines submitted before this become tasks.
        await asyncio.sleep(0)
        # asyncio would log each remaining task, for example a client's, as an error.
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_TASKS_END_S)


def run_on_own_loop(
    coroutine: Coroutine[Any, Any, _Result], timeout_s: float | None = None
) -> _Result:
    """The result of `coroutine`, run on a new loop: a notebook's thread already runs a loop.

    Raises what the coroutine raises, TimeoutError of `concurrent.futures`.
    """
    loop = BackgroundLoop()
    try:
        return loop.submit(coroutine).result(timeout_s)
    finally:
        loop.stop(_STOP_S)


def program_end() -> tuple[DriverEnd, str | None]:
    """How this program ends, and the exception that ends it, without its frames. An interactive
    prompt continues after errors and interrupts."""
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", None
    if not isinstance(error, Exception):
        return "exited", None
    return "exited", "".join(traceback.format_exception_only(type(error), error)).strip()


Close = Callable[[float], None]
"""Takes a timeout in seconds. Must not raise, and must be reentrant: a signal handler may call it
while it runs on the same thread."""


class ProcessExit:
    """Closes handles when the process ends, by the interpreter's exit or by SIGTERM.

    By default SIGTERM ends Python at once, without `atexit`. So SIGTERM is handled while a handle
    is open, unless the user handles it; only the main thread can set a signal handler.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._callbacks: list[Close] = []
        self.by_sigterm = False
        """True while the process ends by SIGTERM."""

    def register(self, close: Close) -> None:
        """Call `close` when the process ends."""
        if not self._callbacks:
            atexit.register(self._close_all)
        self._callbacks.append(close)
        self.handle_sigterm()

    def handle_sigterm(self) -> None:
        """Handle SIGTERM from now on, if a handle is open and this is the main thread."""
        if not self._callbacks or not _in_main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def unregister(self, close: Close) -> None:
        """Undo `register`. Without callbacks, exit and SIGTERM are handled as before."""
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


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


process_exit: Final = ProcessExit(CLOSE_TIMEOUT_S)
"""One for the process, as signal handlers are per process."""

"""An event loop on a daemon thread, in a process that belongs to the user."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from sparklag_schemas.runtime.daemon_threads import DaemonThreads

_Result = TypeVar("_Result")

_TASKS_END_S = 1.0
_STOP_S = 1.0


class BackgroundLoop:
    """Runs coroutines for threads without a loop. The interpreter exits without waiting for it.

    Blocking calls go to `asyncio.to_thread`: see DaemonThreads.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(DaemonThreads())
        self._stopping = asyncio.Event()
        # A call as the loop stops would never run. Reentrant: a signal handler may close in a call.
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
        """Cancel all tasks and stop the loop; whether its thread ended in time. Idempotent."""
        # RuntimeError: stopped before. Its thread may still be running.
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
        # asyncio would log each task that is left, for example a client's, as an error.
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_TASKS_END_S)


def run_on_own_loop(
    coroutine: Coroutine[Any, Any, _Result], timeout_s: float | None = None
) -> _Result:
    """Its result, from a loop of its own: a notebook's thread runs one already.

    Raises what it raises, TimeoutError of `concurrent.futures`.
    """
    loop = BackgroundLoop()
    try:
        return loop.submit(coroutine).result(timeout_s)
    finally:
        loop.stop(_STOP_S)

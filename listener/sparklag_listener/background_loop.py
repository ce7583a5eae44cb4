"""An event loop on a daemon thread, in a process that belongs to somebody else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")


class BackgroundLoop:
    """Runs coroutines for threads that have no loop. Nothing here waits for the thread to end."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="sparklag", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Run `function` on the loop soon. RuntimeError once the loop is stopped."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def submit(self, coroutine: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Run `coroutine` on the loop. RuntimeError once the loop is stopped."""
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise

    def stop(self, timeout_s: float) -> bool:
        """Stop the loop; whether its thread ended in time. Idempotent."""
        if not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(self._loop.stop)
            except RuntimeError:
                return True
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()


async def in_daemon_thread(function: Callable[[], Result]) -> Result:
    """Run a blocking `function` in a thread that an exiting interpreter does not wait for.

    asyncio's own executor joins its threads at exit, and a call into the JVM may never return.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def settle(result: Result | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # there is one without an error

    def run() -> None:
        result, error = None, None
        try:
            result = function()
        except Exception as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            # The loop is gone, and with it whoever asked.
            return

    threading.Thread(target=run, name="sparklag-call", daemon=True).start()
    return await done

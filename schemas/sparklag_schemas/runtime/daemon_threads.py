"""Threads for calls that block, in a process whose end must not wait for them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Semaphore, Thread
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_MOST_THREADS = 8


class DaemonThreads(ThreadPoolExecutor):
    """A loop's default executor that works during the interpreter's exit, and never delays it.

    asyncio's own executor refuses work during the exit, though publishing a driver's last position
    may have to resolve a host name. The exit also waits for its calls, though a call into the JVM
    may never return. Python 3.12 and later start no thread then, so one is started early.
    """

    def __init__(self) -> None:
        # asyncio requires the type; nothing else of the base class is used.
        super().__init__(max_workers=1)
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._idle_threads = Semaphore(0)
        self._started = 0
        self._start_thread()

    def submit(
        self,
        fn: Callable[Parameters, Result],
        /,
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Future[Result]:
        future: Future[Result] = Future()
        self._jobs.put((future, partial(fn, *args, **kwargs)))
        if not self._idle_threads.acquire(blocking=False) and self._started < _MOST_THREADS:
            # RuntimeError: the interpreter exits. A running thread will take the job.
            with suppress(RuntimeError):
                self._start_thread()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads once they have nothing to do. Never waits."""
        self._jobs.put(None)

    def _start_thread(self) -> None:
        Thread(target=self._work, name="sparklag-call", daemon=True).start()
        self._started += 1

    def _work(self) -> None:
        while (job := self._next_job()) is not None:
            future, call = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            del job, future, call
        self._jobs.put(None)

    def _next_job(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        try:
            return self._jobs.get_nowait()
        except Empty:
            self._idle_threads.release()
            return self._jobs.get()

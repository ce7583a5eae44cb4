"""Threads that an exiting interpreter neither waits for nor has to start."""

from __future__ import annotations

import threading
from concurrent.futures import wait

import pytest

from sparklag_schemas.runtime.daemon_threads import DaemonThreads
from tests.scripts import run_script


def test_a_result_and_an_error_come_back() -> None:
    threads = DaemonThreads()
    assert threads.submit(divmod, 7, 3).result(30) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        threads.submit(divmod, 7, 0).result(30)
    threads.shutdown()


def test_a_call_that_hangs_does_not_hold_up_another() -> None:
    threads = DaemonThreads()
    hanging = threading.Event()
    try:
        for _ in range(5):
            threads.submit(hanging.wait)
        assert threads.submit(lambda: "done").result(30) == "done"
    finally:
        hanging.set()
        threads.shutdown()


def test_with_many_calls_there_are_few_threads_and_each_call_is_made() -> None:
    threads = DaemonThreads()
    numbers: list[int] = []

    def work(number: int) -> int:
        numbers.append(number)
        return threading.get_ident()

    made_by = {call.result(30) for call in [threads.submit(work, number) for number in range(500)]}
    assert sorted(numbers) == list(range(500))
    assert len(made_by) <= 8
    threads.shutdown()


def test_a_call_cancelled_before_it_began_is_not_made() -> None:
    threads = DaemonThreads()
    hanging = threading.Event()
    made: list[int] = []
    busy = [threads.submit(hanging.wait) for _ in range(8)]
    waiting = threads.submit(made.append, 1)
    assert waiting.cancel()
    hanging.set()
    wait(busy, 30)
    assert threads.submit(lambda: "after").result(30) == "after"
    assert made == []
    threads.shutdown()


def test_names_are_resolved_while_the_interpreter_exits_and_no_thread_can_be_started() -> None:
    # asyncio's own executor is shut by then; Python 3.12 and later start no thread either.
    ended = run_script(
        """
        import atexit, asyncio, threading
        from sparklag_listener.background_loop import BackgroundLoop

        loop = BackgroundLoop()

        async def resolve():
            return bool(await asyncio.get_running_loop().getaddrinfo("localhost", 9092))

        def at_exit():
            def refuse(thread):
                raise RuntimeError("can't create new thread at interpreter shutdown")
            threading.Thread.start = refuse
            print([loop.submit(resolve()).result(30) for _ in range(3)])

        atexit.register(at_exit)
        """
    )
    assert ended.lines == ["[True, True, True]"], ended.errors
    assert ended.exit_code == 0


def test_a_process_ends_without_waiting_for_a_call_that_hangs() -> None:
    ended = run_script(
        """
        import threading
        from sparklag_schemas.runtime.daemon_threads import DaemonThreads

        begun = threading.Event()
        threads = DaemonThreads()
        threads.submit(lambda: begun.set() or threading.Event().wait())
        begun.wait(30)
        print("ending")
        """
    )
    assert (ended.exit_code, ended.lines) == (0, ["ending"]), ended.errors

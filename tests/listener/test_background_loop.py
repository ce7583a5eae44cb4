"""A loop for threads that have none, and that no process has to wait for."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import SimpleQueue

import pytest

from sparklag_listener.background_loop import BackgroundLoop
from tests.scripts import run_script


def test_coroutines_and_calls_run_on_its_own_thread() -> None:
    loop = BackgroundLoop()
    names: SimpleQueue[str] = SimpleQueue()

    def name_thread() -> None:
        names.put(threading.current_thread().name)

    async def name_it() -> str:
        return threading.current_thread().name

    loop.call(name_thread)
    assert loop.submit(name_it()).result(30) == "sparklag" == names.get(timeout=30)
    assert loop.stop(30)


def test_once_stopped_nothing_is_taken_any_more_and_stopping_again_is_fine() -> None:
    loop = BackgroundLoop()
    assert loop.stop(30)
    assert loop.stop(30)
    with pytest.raises(RuntimeError):
        loop.call(print)
    # Nor does it leave a coroutine that nobody awaits, which would be a warning.
    with pytest.raises(RuntimeError):
        loop.submit(asyncio.sleep(0))


@pytest.mark.blocks_loop("thousands of coroutines are cancelled at once")
def test_what_is_given_while_it_stops_is_refused_or_ends() -> None:
    async def nothing() -> None: ...

    def give_until_refused(loop: BackgroundLoop, given: list[Future[None]]) -> None:
        with suppress(RuntimeError):
            while True:
                given.append(loop.submit(nothing()))

    # That they meet is chance: before the mend it failed in its first rounds.
    for _ in range(2):
        loop = BackgroundLoop()
        given: list[Future[None]] = []
        givers = [threading.Thread(target=give_until_refused, args=(loop, given)) for _ in range(4)]
        for giver in givers:
            giver.start()
        assert loop.stop(30)
        for giver in givers:
            giver.join(30)
            assert not giver.is_alive()
        assert not wait(given, timeout=30).not_done


def test_what_runs_is_cancelled_when_it_stops() -> None:
    loop = BackgroundLoop()
    begun, cancelled = threading.Event(), threading.Event()

    async def wait_for_ever() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    loop.submit(wait_for_ever())
    assert begun.wait(30)
    assert loop.stop(30)
    assert cancelled.is_set()


def test_a_task_that_will_not_be_cancelled_does_not_hold_it_up() -> None:
    ended = run_script(
        """
        import asyncio, time
        from sparklag_listener.background_loop import BackgroundLoop

        async def stubborn():
            while True:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    pass

        loop = BackgroundLoop()
        loop.submit(stubborn())
        print(loop.stop(20))
        """
    )
    assert ended.lines == ["True"]
    assert ended.exit_code == 0


def test_it_can_be_stopped_from_its_own_thread() -> None:
    loop = BackgroundLoop()

    def stop_it() -> None:
        loop.stop(30)

    loop.call(stop_it)
    assert loop.stop(30)


def test_a_process_ends_without_waiting_for_what_blocks_on_it() -> None:
    ended = run_script(
        """
        import threading, time
        from sparklag_listener.background_loop import BackgroundLoop

        async def hang():
            time.sleep(3600)

        BackgroundLoop().submit(hang())
        print("ending")
        """
    )
    assert ended.exit_code == 0
    assert ended.lines == ["ending"]

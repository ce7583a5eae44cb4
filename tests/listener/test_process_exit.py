"""Open handles are closed when the process ends, in any way."""

from __future__ import annotations

import signal
import threading
from typing import Any

from sparklag_listener import ObserverHandle
from sparklag_listener.events.event_queue import Progressed
from sparklag_listener.events.session import OnError, OnEvent
from sparklag_schemas import Observation, ResolvedSettings, Settings
from sparklag_schemas.runtime.queue import NewestQueue
from tests import samples
from tests.listener.fakes import FakeObservedSession
from tests.scripts import run_script
from tests.waiting import DEADLINE_S, wait_for

CLOSERS = """
import os, signal, sys, threading, time
from sparklag_listener.background_loop import ProcessExit

end = ProcessExit(timeout_s=10)

def closer(name):
    def close(timeout_s):
        assert 0 <= timeout_s <= 10
        print(f"closed {name}", flush=True)
    return close

first, second = closer("first"), closer("second")
end.register(first)
end.register(second)
"""


def test_at_exit_all_are_closed() -> None:
    ended = run_script(CLOSERS)
    assert (ended.exit_code, ended.lines) == (0, ["closed first", "closed second"])


def test_on_sigterm_all_are_closed_and_it_ends_by_it_also_where_closing_one_fails() -> None:
    ended = run_script(
        CLOSERS + "end.register(lambda timeout_s: 1 / 0)\n"
        "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)"
    )
    assert ended.exit_code == -signal.SIGTERM
    assert ended.lines == ["closed first", "closed second"]


def test_what_is_forgotten_is_not_closed_and_with_nothing_open_sigterm_is_as_it_was() -> None:
    assert run_script(CLOSERS + "end.unregister(first)").lines == ["closed second"]
    ended = run_script(
        CLOSERS + "end.unregister(first); end.unregister(second); end.unregister(second)\n"
        "print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)"
    )
    assert ended.lines == ["True"]


def test_a_handler_of_the_drivers_own_is_left_alone() -> None:
    ended = run_script(
        "import signal\nsignal.signal(signal.SIGTERM, lambda *_: exit(7))\n"
        + CLOSERS
        + "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)"
    )
    # It leaves by the interpreter's exit, so all are closed there.
    assert (ended.exit_code, ended.lines) == (7, ["closed first", "closed second"])


def test_a_handler_the_driver_sets_later_is_left_alone() -> None:
    ended = run_script(
        CLOSERS + "mine = lambda *_: None\nsignal.signal(signal.SIGTERM, mine)\n"
        "end.unregister(first); end.unregister(second)\n"
        "print(signal.getsignal(signal.SIGTERM) is mine)"
    )
    assert ended.lines == ["True"]


def test_outside_the_main_thread_no_signal_handler_is_set() -> None:
    ended = run_script(
        """
        import signal, threading
        from sparklag_listener.background_loop import ProcessExit

        end = ProcessExit(timeout_s=10)
        watch = lambda: end.register(lambda timeout_s: print("closed"))
        thread = threading.Thread(target=watch)
        thread.start()
        thread.join()
        print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
        """
    )
    assert (ended.exit_code, ended.lines) == (0, ["True", "closed"])


class _SlowToUnregister(FakeObservedSession):
    def __init__(self) -> None:
        super().__init__()
        self.on_event: OnEvent | None = None
        self.unregisters, self.unregistered = threading.Event(), threading.Event()

    def listen(self, on_event: OnEvent, on_error: OnError) -> None:
        self.on_event = on_event

    def stop_listening(self, timeout_s: float) -> None:
        self.unregisters.set()
        self.unregistered.wait(DEADLINE_S)


def test_a_process_that_ends_while_its_handle_is_closed_reports_that_it_has_exited() -> None:
    taken: list[Observation] = []

    async def take(queue: NewestQueue[Observation], settings: ResolvedSettings, stats: Any) -> None:
        while True:
            taken.append(await queue.get())
            queue.task_done()

    session = _SlowToUnregister()
    handle = ObserverHandle(session, Settings(bootstrap_servers="broker:9092"), take)
    assert session.on_event is not None
    progress = samples.progress_document("single_kafka.progress1")
    text = samples.progress_text("single_kafka.progress1")
    session.queries.runs(progress["id"], progress["runId"], progress["batchId"], text)
    session.on_event(Progressed(text, 20))
    wait_for(lambda: bool(taken), "the progress is published")
    closing = threading.Thread(target=handle.close, args=(DEADLINE_S,))
    closing.start()
    assert session.unregisters.wait(DEADLINE_S)
    exiting = threading.Thread(target=handle._exit, args=(DEADLINE_S,))
    exiting.start()
    wait_for(lambda: handle._program_end[0] == "exited", "the exit has begun")
    session.unregistered.set()
    for thread in (closing, exiting):
        thread.join(DEADLINE_S)
    assert (taken[-1].cause, taken[-1].driver_end) == ("terminated", "exited")

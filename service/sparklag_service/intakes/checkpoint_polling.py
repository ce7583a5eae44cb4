"""When each checkpoint is polled, and the threads that wait for its storage meanwhile."""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Protocol, TypeVar

from sparklag_offsets.checkpoints import CheckpointPosition, CheckpointReader
from sparklag_offsets.errors import CheckpointAway, CheckpointError
from sparklag_schemas.redaction import redact_location
from sparklag_schemas.runtime.daemon_threads import DaemonThreads
from sparklag_schemas.runtime.tasks import cancel_and_wait, until_set

_log = logging.getLogger(__name__)
_TICK_S = 0.025
"""Checkpoints that are due within one tick are polled together."""
_LONGEST_SLEEP_S = 1.0

Result = TypeVar("Result")
PollResult = CheckpointPosition | CheckpointError | None
"""The position; None where it has not changed; or why it is unknown."""


class PolledCheckpoint(Protocol):
    """A checkpoint that is polled again and again."""

    @property
    def location(self) -> str:
        """Normalised."""

    def next_reader(self) -> CheckpointReader | None:
        """The reader to poll now. None: it is not polled now, but may be in a second."""

    def take(self, result: PollResult) -> float | None:
        """Process a result; return the seconds until the next poll, None: there is none.

        A poll that times out has two results: CheckpointAway, then what it returns in the end.
        """


class CheckpointPoller:
    """Polls in the threads of each store: one that hangs delays only its own checkpoints. On the
    local file system a poll that hangs delays only its own checkpoint."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._schedule: list[tuple[float, int, PolledCheckpoint]] = []
        """A heap by time; the number breaks ties."""
        self._numbers = count()
        self._rescheduled = asyncio.Event()
        self._polls: set[asyncio.Task[None]] = set()
        self._threads: dict[str, DaemonThreads] = {}

    def schedule(self, checkpoint: PolledCheckpoint, after_s: float) -> None:
        """Poll it in `after_s` seconds, and then as often as its `take` returns."""
        entry = (time.monotonic() + after_s, next(self._numbers), checkpoint)
        heapq.heappush(self._schedule, entry)
        if self._schedule[0] is entry:
            self._rescheduled.set()

    async def run(self) -> None:
        """Poll until cancelled."""
        try:
            while True:
                for batch in self._take_due():
                    poll = asyncio.create_task(self._poll(batch))
                    self._polls.add(poll)
                    poll.add_done_callback(self._polls.discard)
                await asyncio.sleep(_TICK_S)
                left_s = self._schedule[0][0] - time.monotonic() if self._schedule else 1.0
                self._rescheduled.clear()
                await until_set(self._rescheduled, min(left_s, _LONGEST_SLEEP_S))
        finally:
            await cancel_and_wait(*self._polls)
            for threads in self._threads.values():
                threads.shutdown()

    def call(self, location: str, function: Callable[[], Result]) -> asyncio.Future[Result]:
        """Call it in a thread of the store of `location`."""
        scheme, _, rest = location.rpartition("://")
        store = f"{scheme}://{rest.partition('/')[0]}" if scheme else ""
        if store not in self._threads:
            self._threads[store] = DaemonThreads()
        call = asyncio.get_running_loop().run_in_executor(self._threads[store], function)
        # Its caller may be gone when it returns.
        call.add_done_callback(lambda done: done.cancelled() or done.exception())
        return call

    def timed_out(self, location: str) -> CheckpointError:
        """That a call for `location` takes longer than it may."""
        return CheckpointAway(
            f"{redact_location(location)}: no answer within {self._timeout_s:g} s"
        )

    def _take_due(self) -> list[list[tuple[PolledCheckpoint, CheckpointReader]]]:
        """Batches: local checkpoints together, each other one by itself."""
        local: list[tuple[PolledCheckpoint, CheckpointReader]] = []
        batches = [local]
        now_s = time.monotonic()
        while self._schedule and self._schedule[0][0] <= now_s:
            _, _, checkpoint = heapq.heappop(self._schedule)
            reader = checkpoint.next_reader()
            if reader is None:
                self.schedule(checkpoint, _LONGEST_SLEEP_S)
            elif "://" in checkpoint.location:
                batches.append([(checkpoint, reader)])
            else:
                local.append((checkpoint, reader))
        return [batch for batch in batches if batch]

    async def _poll(self, batch: list[tuple[PolledCheckpoint, CheckpointReader]]) -> None:
        waiting = deque(batch)
        results: list[PollResult] = []

        def poll_all() -> None:
            with suppress(IndexError):
                while True:
                    _, reader = waiting.popleft()
                    results.append(result_of(reader.poll, reader.location))

        polling = self.call(batch[0][0].location, poll_all)
        await asyncio.wait({polling}, timeout=self._timeout_s)
        begun = len(batch)
        with suppress(IndexError):
            while True:
                # It is behind one that hangs: another thread polls it.
                checkpoint, _ = waiting.popleft()
                begun -= 1
                self.schedule(checkpoint, 0.0)
        in_time = list(results)
        self._take(batch, in_time)
        if len(in_time) < begun:
            hanging, _ = batch[len(in_time)]
            hanging.take(self.timed_out(hanging.location))
            await asyncio.wait({polling})
            self._take(batch[len(in_time) :], results[len(in_time) :])

    def _take(
        self,
        batch: list[tuple[PolledCheckpoint, CheckpointReader]],
        results: list[PollResult],
    ) -> None:
        for (checkpoint, _), result in zip(batch, results, strict=False):
            after_s = checkpoint.take(result)
            if after_s is not None:
                self.schedule(checkpoint, after_s)


def result_of(function: Callable[[], Result], location: str) -> Result | CheckpointError:
    """What it returns, or the error. A bug in one store's client must not end the service."""
    try:
        return function()
    except CheckpointError as error:
        return error
    except Exception as error:
        _log.error("unexpected error in %s: %s", redact_location(location), type(error).__name__)
        # Its text may hold a secret.
        return CheckpointError(f"{redact_location(location)}: {type(error).__name__}")

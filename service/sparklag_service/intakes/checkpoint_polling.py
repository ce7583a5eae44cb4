"""The schedule of polls, and the threads for calls to the storage of checkpoints."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import TypeVar

from sparklag_offsets.checkpoints import CheckpointPosition, CheckpointReader
from sparklag_offsets.errors import CheckpointAway, CheckpointError
from sparklag_schemas.runtime.daemon_threads import DaemonThreads
from sparklag_schemas.runtime.tasks import cancel_and_wait
from sparklag_schemas.text.locations import redact_location

_log = logging.getLogger(__name__)
_TICK_S = 0.025
"""Checkpoints that are due within one tick are polled together."""
_RETRY_S = 1.0

Result = TypeVar("Result")
PollResult = CheckpointPosition | CheckpointError | None
"""The position; None if it has not changed; or the error."""


@dataclass(eq=False)
class WatchedCheckpoint:
    location: str
    """Normalised."""
    cluster: str
    below: str | None
    """The configured folder that must contain it. None: the settings name the checkpoint itself."""
    configured: bool
    """True: the settings name it; False: a driver reported it."""
    reader: CheckpointReader | None = None
    query_id: str | None = None
    identified_s: float = 0.0
    """`time.monotonic()` of the last read of the query id."""
    position: CheckpointPosition | None = None
    advanced_s: float = -inf
    """`time.monotonic()` of the last read that found another batch than the one before."""
    put_s: float | None = None
    """`time.monotonic()` of the last observation. None: none by this instance."""
    failures: int = 0


_Batch = list[tuple[WatchedCheckpoint, CheckpointReader]]


@dataclass(eq=False, repr=False)
class CheckpointPoller:
    """Polls in the threads of each store: a store that hangs delays only its own checkpoints. On
    the local file system a poll that hangs delays only its own checkpoint."""

    _timeout_s: float
    _next_reader: Callable[[WatchedCheckpoint], CheckpointReader | None]
    """Returns None if the checkpoint is not polled now; it is called again a second later."""
    _take: Callable[[WatchedCheckpoint, PollResult], float | None]
    """Processes a result, and returns the seconds until the next poll, or None for no next poll. A
    poll that times out has two results: CheckpointAway, later its own."""
    _local: _Batch = field(default_factory=list)
    _local_is_due: asyncio.Event = field(default_factory=asyncio.Event)
    _polls: set[asyncio.Task[None]] = field(default_factory=set)
    _threads: dict[str, DaemonThreads] = field(default_factory=dict)
    _closed: bool = False

    def schedule(self, checkpoint: WatchedCheckpoint, after_s: float) -> None:
        """Poll a checkpoint in `after_s` seconds, then at the intervals that `take` returns."""
        asyncio.get_running_loop().call_later(after_s, self._start_poll, checkpoint)

    async def run(self) -> None:
        try:
            while True:
                await self._local_is_due.wait()
                await asyncio.sleep(_TICK_S)
                self._local_is_due.clear()
                batch, self._local = self._local, []
                self._create_task(batch)
        finally:
            self._closed = True
            await cancel_and_wait(*self._polls)
            for threads in self._threads.values():
                threads.shutdown()

    def call(self, location: str, function: Callable[[], Result]) -> asyncio.Future[Result]:
        """Call `function` in a thread of the store of `location`."""
        scheme, _, rest = location.rpartition("://")
        store = f"{scheme}://{rest.partition('/')[0]}" if scheme else ""
        if store not in self._threads:
            self._threads[store] = DaemonThreads()
        call = asyncio.get_running_loop().run_in_executor(self._threads[store], function)
        # The caller may be cancelled before the call returns.
        call.add_done_callback(lambda done: done.cancelled() or done.exception())
        return call

    def timed_out(self, location: str) -> CheckpointError:
        return CheckpointAway(
            f"{redact_location(location)}: no answer within {self._timeout_s:g} s"
        )

    def _start_poll(self, checkpoint: WatchedCheckpoint) -> None:
        """Poll local checkpoints together, and every other checkpoint alone."""
        if self._closed:
            return
        reader = self._next_reader(checkpoint)
        if reader is None:
            self.schedule(checkpoint, _RETRY_S)
        elif "://" in checkpoint.location:
            self._create_task([(checkpoint, reader)])
        else:
            self._local.append((checkpoint, reader))
            self._local_is_due.set()

    def _create_task(self, batch: _Batch) -> None:
        task = asyncio.create_task(self._poll(batch))
        self._polls.add(task)
        task.add_done_callback(self._polls.discard)

    async def _poll(self, batch: _Batch) -> None:
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
                # An earlier checkpoint of the batch hangs: another thread polls this one.
                checkpoint, _ = waiting.popleft()
                begun -= 1
                self.schedule(checkpoint, 0.0)
        in_time = list(results)
        self._take_all(batch, in_time)
        if len(in_time) < begun:
            hanging, _ = batch[len(in_time)]
            self._take(hanging, self.timed_out(hanging.location))
            await asyncio.wait({polling})
            self._take_all(batch[len(in_time) :], results[len(in_time) :])

    def _take_all(self, batch: _Batch, results: list[PollResult]) -> None:
        for (checkpoint, _), result in zip(batch, results, strict=False):
            after_s = self._take(checkpoint, result)
            if after_s is not None:
                self.schedule(checkpoint, after_s)


def result_of(function: Callable[[], Result], location: str) -> Result | CheckpointError:
    """The result or the error. A bug in a store's client must not end the service."""
    try:
        return function()
    except CheckpointError as error:
        return error
    except Exception as error:
        _log.error("unexpected error in %s: %s", redact_location(location), type(error).__name__)
        # The text of the error may contain a secret.
        return CheckpointError(f"{redact_location(location)}: {type(error).__name__}")

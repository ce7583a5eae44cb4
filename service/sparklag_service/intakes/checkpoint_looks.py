"""When each checkpoint is looked at, and the threads in which that is done."""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Protocol, TypeVar

from sparklag_offsets.checkpoints import CheckpointPosition, CheckpointReader
from sparklag_offsets.errors import CheckpointAway, CheckpointError
from sparklag_schemas.redaction import redact_location
from sparklag_schemas.runtime.daemon_threads import DaemonThreads
from sparklag_schemas.runtime.tasks import end, until_set

_log = logging.getLogger(__name__)
_TICK_S = 0.025
"""What is due within one is looked at together."""
_LONGEST_SLEEP_S = 1.0
_PATIENCE_S = 1.0

Answer = TypeVar("Answer")
Looked = CheckpointPosition | CheckpointError | None
"""Where a query is; that it is where it was; or why nobody knows."""


class Place(Protocol):
    """Where to look."""

    @property
    def location(self) -> str:
        """Normal."""

    def due(self) -> CheckpointReader | None:
        """Who is to look there now. None: nobody, it is asked again in a second."""

    def looked(self, answer: Looked) -> float | None:
        """What was found there; in how many seconds to look again. None: never.

        Where there is no answer in time that is told, and then the answer, once it comes.
        """


class CheckpointLooks:
    """A store that hangs holds up nobody but its own checkpoints, one that hangs in this machine's
    kernel only itself."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._due: list[tuple[float, int, Place]] = []
        self._numbers = count()
        self._sooner = asyncio.Event()
        self._looks: set[asyncio.Task[None]] = set()
        self._threads: dict[str, DaemonThreads] = {}

    def schedule(self, place: Place, after_s: float) -> None:
        """Look there in so many seconds, and as often as it says."""
        due = (time.monotonic() + after_s, next(self._numbers), place)
        heapq.heappush(self._due, due)
        if self._due[0] is due:
            self._sooner.set()

    async def run(self) -> None:
        """Look until cancelled."""
        try:
            while True:
                for places in self._take_due():
                    look = asyncio.create_task(self._look_at(places))
                    self._looks.add(look)
                    look.add_done_callback(self._looks.discard)
                await asyncio.sleep(_TICK_S)
                await self._until_due()
        finally:
            await end(*self._looks, patience_s=_PATIENCE_S)
            for threads in self._threads.values():
                threads.shutdown()

    def ask(self, location: str, question: Callable[[], Answer]) -> asyncio.Future[Answer]:
        """Put a question to the store of `location`, in one of its threads."""
        scheme, _, rest = location.rpartition("://")
        store = f"{scheme}://{rest.partition('/')[0]}" if scheme else ""
        if store not in self._threads:
            self._threads[store] = DaemonThreads()
        asked = asyncio.get_running_loop().run_in_executor(self._threads[store], question)
        # Whoever waits for it may be gone by then.
        asked.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        return asked

    def unanswered(self, location: str) -> CheckpointError:
        """That the time is over."""
        shown = redact_location(location)
        return CheckpointAway(f"{shown}: no answer within {self._timeout_s:g} s")

    async def _until_due(self) -> None:
        left_s = self._due[0][0] - time.monotonic() if self._due else _LONGEST_SLEEP_S
        self._sooner.clear()
        await until_set(self._sooner, min(left_s, _LONGEST_SLEEP_S))

    def _take_due(self) -> list[list[tuple[Place, CheckpointReader]]]:
        """Local ones together, each other one by itself."""
        local: list[tuple[Place, CheckpointReader]] = []
        due = [local]
        now_s = time.monotonic()
        while self._due and self._due[0][0] <= now_s:
            _, _, place = heapq.heappop(self._due)
            reader = place.due()
            if reader is None:
                self.schedule(place, _LONGEST_SLEEP_S)
            elif "://" in place.location:
                due.append([(place, reader)])
            else:
                local.append((place, reader))
        return [each for each in due if each]

    async def _look_at(self, places: list[tuple[Place, CheckpointReader]]) -> None:
        looks = _Looks([reader for _, reader in places])
        looking = self.ask(places[0][0].location, looks.run)
        await asyncio.wait({looking}, timeout=self._timeout_s)
        if not looking.done():
            looks.give_up()
        answers = list(looks.answers)
        for (place, _), answer in zip(places, answers, strict=False):
            self._tell(place, answer)
        for place, _ in places[len(answers) + 1 :]:
            self.schedule(place, 0.0)
        if len(answers) < len(places):
            hangs, _ = places[len(answers)]
            hangs.looked(self.unanswered(hangs.location))
            # It is not asked the same again before.
            await asyncio.wait({looking})
            if len(looks.answers) > len(answers):
                self._tell(hangs, looks.answers[len(answers)])
            else:
                self.schedule(hangs, 0.0)

    def _tell(self, place: Place, answer: Looked) -> None:
        again_s = place.looked(answer)
        if again_s is not None:
            self.schedule(place, again_s)


class _Looks:
    """Looks at several, one after the other, in a thread. The loop sees how far it is."""

    def __init__(self, readers: Sequence[CheckpointReader]) -> None:
        self.answers: list[Looked] = []
        self._readers = readers
        self._is_given_up = False

    def run(self) -> None:
        for reader in self._readers:
            if self._is_given_up:
                return
            self.answers.append(answer_of(reader.look, reader.location))

    def give_up(self) -> None:
        """Look at no other after the present one."""
        self._is_given_up = True


def answer_of(question: Callable[[], Answer], place: str) -> Answer | CheckpointError:
    """The answer, or why there is none. One store's client must not end the service."""
    try:
        return question()
    except CheckpointError as error:
        return error
    except Exception as error:
        _log.error("unforeseen in %s: %s", redact_location(place), type(error).__name__)
        # Its text may hold a secret.
        return CheckpointError(f"{redact_location(place)}: {type(error).__name__}")

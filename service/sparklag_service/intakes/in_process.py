"""The embedded intake: the driver's own queue."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from sparklag_schemas import Observation
from sparklag_schemas.messages.headers import batch_trace
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.intakes import BatchTrace, Delivery, RebalanceHandler


class DriverStats(Protocol):
    """The counts of the driver's handle."""

    published: int
    url: str | None


@dataclass(eq=False, repr=False)
class InProcessIntake:
    """Moves observations from the driver's queue. Marks each as done there after its lag event."""

    _source: NewestQueue[Observation]
    _stats: DriverStats
    _queue: NewestQueue[Delivery]
    _traced: bool
    ready: str | None = None

    @property
    def caught_up_s(self) -> float:
        """Now: the queue is in this process."""
        return time.monotonic()

    @property
    def behind(self) -> int:
        """Observations in the driver's queue."""
        return self._source.qsize()

    def may_adopt(self, query_id: str) -> bool:
        """False: other drivers, or the service, measure their queries."""
        return False

    def owns(self, query_id: str) -> bool:
        """True: this driver's queries stay here."""
        return True

    def pause(self) -> None:
        """Nothing to do: the driver's queue ends with the driver."""

    async def run(self, handler: RebalanceHandler) -> None:
        while True:
            observation = await self._source.get()
            trace = None
            if self._traced and (context := batch_trace(observation)) is not None:
                # The observation does not pass through Kafka: it is written and received now.
                now_ms = epoch_ms()
                trace = BatchTrace(context, now_ms, now_ms)
            self._queue.put_nowait(Delivery(observation, self._done, trace=trace))

    def _done(self) -> None:
        self._source.task_done()
        self._stats.published += 1

"""Instances of the service: each is a whole pipeline in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

from sparklag_schemas import ResolvedSettings
from sparklag_service.intakes.topic import TopicIntake
from sparklag_service.pipeline import Pipeline
from tests.simulation.clock import Process, VirtualLoop
from tests.simulation.kafka import SimulatedKafka

_DRAIN_S = 4.0


class Instance:
    """Runs from its creation until it leaves or is killed."""

    def __init__(
        self, loop: VirtualLoop, kafka: SimulatedKafka, settings: ResolvedSettings, name: str
    ) -> None:
        # Any number: two processes' monotonic clocks have nothing in common.
        self.process = Process(name, monotonic_offset_s=10_000.0 * (1 + len(name) + hash_of(name)))
        self.pipeline: Pipeline | None = None
        self._kafka = kafka
        self._loop = loop
        self._settings = settings
        self.task = loop.start(self.process, self._run())

    @property
    def failure(self) -> BaseException | None:
        if not self.task.done() or self.task.cancelled() or not self.process.is_alive:
            return None
        return self.task.exception()

    def kill(self) -> None:
        """As SIGKILL: nothing it does from now on reaches anybody."""
        self.process.is_alive = False
        self.process.go_on()
        self._lose()
        self.task.cancel()

    def stand_still(self) -> None:
        """As SIGSTOP, or a machine that is suspended."""
        self.process.stand_still()
        self._lose()

    def go_on(self) -> None:
        self.process.go_on()

    def leave(self) -> None:
        self._leaving = self._loop.start(self.process, self._leave())

    async def _run(self) -> None:
        settings = self._settings
        self.pipeline = Pipeline(settings, partial(TopicIntake, settings), "service")
        await self.pipeline.run()

    async def _leave(self) -> None:
        if self.pipeline is not None:
            await self.pipeline.drain(_DRAIN_S)
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task
        self.process.is_alive = False
        # Where it could not tell the group that it leaves.
        self._lose()

    def _lose(self) -> None:
        for group in self._kafka.groups.values():
            for member in list(group.members):
                if member.process is self.process:
                    group.lost(member)


def hash_of(name: str) -> int:
    return sum(name.encode())

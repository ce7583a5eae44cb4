"""A mirror by itself, fed by hand, on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from sparklag_schemas import MirrorSettings, Observation, Settings, encode
from sparklag_schemas.settings.clusters import ClusterNames
from sparklag_service.counters import Counters
from sparklag_service.mirror.mirror import Mirror
from sparklag_service.view.view import Entry, View
from tests.background_task import background
from tests.messages import lag_event
from tests.second_client import SecondClient
from tests.service.states import States
from tests.waiting import eventually, holds

_NO_COORDINATOR_YET: Final = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
"""A broker that has just started."""


class Mirroring:
    """The mirror of one instance, with its tracker and view."""

    def __init__(self, settings: Settings, bootstrap_servers: str) -> None:
        self.tracker = States(ClusterNames(settings.resolved(bootstrap_servers)).alias_of)
        self.view = View()
        self.counters = Counters()
        self.kept = True
        self.mirror = Mirror(
            settings.resolved(bootstrap_servers),
            self.view,
            self.tracker.queries,
            lambda query_id: self.kept,
            self.counters,
        )

    def observe(self, *observations: Observation) -> None:
        """Track observations, and show their queries as live."""
        for observed in observations:
            self.tracker.observe(observed)
            self.show(observed)

    def show(self, observed: Observation, status: str = "OK") -> None:
        event = lag_event(query_id=observed.query_id, query=observed.query, status=status)
        self.view.remove(observed.query_id)
        self.view.put(Entry(event, encode(event), 0.0, 0, 0))

    async def fails(self, text: str) -> str:
        received: dict[str, None] = {}

        def fails() -> bool:
            received.update(dict.fromkeys(self.mirror.failing.values()))
            return any(text in reason for reason in received)

        try:
            await holds(fails, f"failing: {text}")
        except AssertionError as error:
            raise AssertionError(f"{error}; what failed: {list(received)}") from error
        return next(reason for reason in received if text in reason)

    async def fails_no_more(self) -> None:
        await holds(lambda: not self.mirror.failing, "nothing fails")

    async def refused(self, times: int = 2) -> None:
        """Wait until it has refused a group so often again."""
        before = self.counters.mirror_refused
        await holds(lambda: self.counters.mirror_refused >= before + times, "it is refused again")


@asynccontextmanager
async def mirroring(
    bootstrap_servers: str, *, group: str = "spark-{query}", interval_s: float = 0.1, **fields: Any
) -> AsyncIterator[Mirroring]:
    mirror = MirrorSettings(queries=[".*"], group=group, interval_s=interval_s)
    instance = Mirroring(Settings(mirror=mirror, **fields), bootstrap_servers)
    async with background(instance.mirror.run()) as running:
        yield instance
        assert not running.done()


async def committed(client: SecondClient, group: str, topic: str, offsets: dict[int, int]) -> None:

    async def are_these() -> bool:
        try:
            return await asyncio.to_thread(client.committed, group, topic) == offsets
        except KafkaException as failure:
            if failure.args[0].code() not in _NO_COORDINATOR_YET:
                raise
            return False

    await eventually(are_these, f"{group} is at {offsets} of {topic}")

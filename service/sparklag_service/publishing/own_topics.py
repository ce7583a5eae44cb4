"""sparklag's own topics: created at the start, and again when one is deleted, where that is
allowed; else a missing one is named for as long as it is missing."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from sparklag_kafka.access import explain_error
from sparklag_kafka.brokers.logs import read_partitions
from sparklag_kafka.clients.topic_setup import create_missing, find_problems
from sparklag_kafka.errors import KAFKA_FAILURES, TopicUnavailable
from sparklag_schemas import ResolvedSettings, SparklagError
from sparklag_schemas.messages.topics import own_topics

_log = logging.getLogger(__name__)
_RETRY_S = 2.0


class OwnTopics:
    """Creates missing topics, where `create_topics` allows it; warns of configurations that would
    lose data."""

    def __init__(self, settings: ResolvedSettings) -> None:
        self._settings = settings
        self.ready: str | None = f"Kafka at {settings.bootstrap_servers} has not answered yet"
        """None once they are there, or why they are not."""

    async def until_ready(self) -> None:
        """Return once both exist; wait for Kafka."""
        while self.ready is not None:
            try:
                await self._create()
                await self._warn_of_problems()
            except (*KAFKA_FAILURES, SparklagError) as error:
                reason = str(error)
                if not isinstance(error, SparklagError):
                    cause = await explain_error(error, self._settings.access)
                    reason = f"Kafka at {self._settings.bootstrap_servers}: {cause}"
                self._not_ready(reason)
                await asyncio.sleep(_RETRY_S)
            else:
                self.ready = None

    async def recreate(self, failed: asyncio.Event) -> None:
        """Create deleted topics again, until cancelled; checks at once when `failed` is set.

        While one is missing it is not `ready`.
        """
        interval_s = min(self._settings.metadata_interval_s, self._settings.heartbeat_s)
        while True:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(failed.wait(), interval_s)
            failed.clear()
            try:
                await self._create()
            except TopicUnavailable as error:
                self._not_ready(str(error))
            except (*KAFKA_FAILURES, SparklagError) as error:
                _log.debug("topics were not checked: %s", error)
            else:
                self.ready = None
            await asyncio.sleep(min(_RETRY_S, interval_s))

    def _not_ready(self, reason: str) -> None:
        if reason != self.ready:
            self.ready = reason
            _log.warning("%s; retrying", reason)

    async def _create(self) -> None:
        """Raises TopicUnavailable where one is missing and stays so."""
        settings = self._settings
        topics = own_topics(settings)
        if settings.create_topics:
            for name in await create_missing(settings.access, topics):
                _log.info("created topic %s", name)
            return
        names = [topic.name for topic in topics]
        existing = await read_partitions(names, settings.access)
        if missing := [name for name in names if name not in existing]:
            raise TopicUnavailable(
                f"there is no topic {' and no topic '.join(missing)}, or no right to see it:"
                " create it with `sparklag topics create`, since create_topics = false"
            )

    async def _warn_of_problems(self) -> None:
        settings = self._settings
        topics = own_topics(settings)
        for problems in (await find_problems(settings.access, topics)).values():
            for problem in problems:
                _log.warning("%s", problem)

"""sparklag's own topics: created at the start, and again when one is deleted."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from sparklag_kafka.clients.client_options import explain_error
from sparklag_kafka.clients.topic_setup import create_missing, find_problems
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_schemas import ResolvedSettings, SparklagError
from sparklag_schemas.topics import own_topics

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
                if reason != self.ready:
                    self.ready = reason
                    _log.warning("%s; retrying", reason)
                await asyncio.sleep(_RETRY_S)
            else:
                self.ready = None

    async def recreate(self, failed: asyncio.Event) -> None:
        """Create deleted topics again, until cancelled; checks at once when `failed` is set."""
        while True:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(failed.wait(), self._settings.metadata_interval_s)
            failed.clear()
            try:
                await self._create()
            except (*KAFKA_FAILURES, SparklagError) as error:
                _log.debug("topics were not checked: %s", error)
            await asyncio.sleep(_RETRY_S)

    async def _create(self) -> None:
        settings = self._settings
        if settings.create_topics:
            topics = own_topics(settings)
            for name in await create_missing(settings.access, topics):
                _log.info("created topic %s", name)

    async def _warn_of_problems(self) -> None:
        settings = self._settings
        topics = own_topics(settings)
        for problems in (await find_problems(settings.access, topics)).values():
            for problem in problems:
                _log.warning("%s", problem)

"""Kafka's ids of topics, cached: they tell a topic from a later one of the same name."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from sparklag_kafka.brokers.log_bounds import read_topic_ids
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_schemas import ClusterAccess, Observation, Settings, SparklagError
from sparklag_schemas.clusters import ClusterNames

_log = logging.getLogger("sparklag.offsets")
_TIMEOUT_S: Final = 3.0
"""After this a batch is recorded without ids."""


class TopicIds:
    """Requested from Kafka at most every `metadata_interval_s`, in one request for each cluster."""

    def __init__(self, settings: Settings, timeout_s: float = _TIMEOUT_S) -> None:
        self._interval_s = settings.metadata_interval_s
        self._timeout_s = timeout_s
        self._clusters = ClusterNames(settings)
        self._ids: dict[str, dict[str, str]] = defaultdict(dict)
        """By `bootstrap_servers` of the settings, then topic."""
        self._requested_at_s: dict[tuple[str, str], float] = {}

    def get(self, bootstrap_servers: str | None, topic: str) -> str | None:
        """The cached id. None: not known, or no setting names these brokers."""
        access = self._clusters.access_to(bootstrap_servers)
        return self._ids[access.bootstrap_servers].get(topic) if access is not None else None

    def needs_refresh(self, observations: Iterable[Observation]) -> bool:
        """Whether `refresh` would send a request."""
        return bool(self._due(observations))

    async def refresh(self, observations: Iterable[Observation]) -> None:
        """Request the ids of the topics in these observations; a failure leaves them unknown."""
        due = self._due(observations).values()
        await asyncio.gather(*(self._request(access, topics) for access, topics in due))

    def _due(
        self, observations: Iterable[Observation]
    ) -> dict[str, tuple[ClusterAccess, set[str]]]:
        """Topics to request now, by their `bootstrap_servers`."""
        due: dict[str, tuple[ClusterAccess, set[str]]] = {}
        before_s = time.monotonic() - self._interval_s
        for observation in observations:
            for source in observation.sources:
                access = self._clusters.access_to(source.bootstrap_servers)
                if access is None:
                    continue
                servers = access.bootstrap_servers
                for topic in source.processed or ():
                    if self._requested_at_s.get((servers, topic), before_s) <= before_s:
                        due.setdefault(servers, (access, set()))[1].add(topic)
        return due

    async def _request(self, access: ClusterAccess, topics: set[str]) -> None:
        servers = access.bootstrap_servers
        try:
            ids = await asyncio.wait_for(read_topic_ids(topics, access), self._timeout_s)
        except (*KAFKA_FAILURES, SparklagError) as error:
            _log.debug("cannot read the ids of topics at %s: %s", servers, error)
            ids = {}
        cached = self._ids[servers]
        for topic in topics:
            cached.pop(topic, None)
        cached.update(ids)
        self._requested_at_s.update(dict.fromkeys(((servers, t) for t in topics), time.monotonic()))

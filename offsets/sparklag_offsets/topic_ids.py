"""Kafka's ids of topics, as they were a moment ago: what tells a topic from one of the same name
that is created later."""

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

_log = logging.getLogger("sparklag")
_PATIENCE_S: Final = 3.0
"""Who records waits no longer: without an id it is recorded too."""


class TopicIds:
    """Asked of Kafka at most every `metadata_interval_s`, together."""

    def __init__(self, settings: Settings, patience_s: float = _PATIENCE_S) -> None:
        self._interval_s = settings.metadata_interval_s
        self._patience_s = patience_s
        self._clusters = ClusterNames(settings)
        self._ids: dict[str, dict[str, str]] = defaultdict(dict)
        """By `bootstrap_servers` of the settings, then topic."""
        self._asked: dict[tuple[str, str], float] = {}

    def of(self, bootstrap_servers: str | None, topic: str) -> str | None:
        """As it was asked last. None: not known, or no setting names these brokers."""
        access = self._clusters.access_to(bootstrap_servers)
        return self._ids[access.bootstrap_servers].get(topic) if access is not None else None

    def is_due(self, observations: Iterable[Observation]) -> bool:
        """Whether `learn` would ask."""
        return bool(self._wanted(observations))

    async def learn(self, observations: Iterable[Observation]) -> None:
        """Ask for the topics that these name. What cannot be asked is not known."""
        wanted = self._wanted(observations)
        await asyncio.gather(*(self._ask(access, topics) for access, topics in wanted.values()))

    def _wanted(
        self, observations: Iterable[Observation]
    ) -> dict[str, tuple[ClusterAccess, set[str]]]:
        """Topics that it is time to ask for, by their `bootstrap_servers`."""
        wanted: dict[str, tuple[ClusterAccess, set[str]]] = {}
        since_s = time.monotonic() - self._interval_s
        for observation in observations:
            for source in observation.sources:
                access = self._clusters.access_to(source.bootstrap_servers)
                if access is None:
                    continue
                asked = access.bootstrap_servers
                for topic in source.processed or ():
                    if self._asked.get((asked, topic), since_s) <= since_s:
                        wanted.setdefault(asked, (access, set()))[1].add(topic)
        return wanted

    async def _ask(self, access: ClusterAccess, topics: set[str]) -> None:
        asked = access.bootstrap_servers
        try:
            found = await asyncio.wait_for(read_topic_ids(topics, access), self._patience_s)
        except (*KAFKA_FAILURES, SparklagError) as error:
            _log.debug("ids of topics at %s are not known: %s", asked, error)
            found = {}
        known = self._ids[asked]
        for topic in topics:
            known.pop(topic, None)
        known.update(found)
        self._asked.update(dict.fromkeys(((asked, topic) for topic in topics), time.monotonic()))

"""A cache of topic ids, which distinguish a topic from a recreated one, and of log ends, beyond
which no query can have read."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from sparklag_kafka.brokers.logs import read_bounds, read_topic_ids
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_offsets.errors import RecordRefused
from sparklag_schemas import ClusterAccess, Observation, Settings, SparklagError
from sparklag_schemas.settings.clusters import ClusterNames
from sparklag_schemas.text.printable import printable

_log = logging.getLogger("sparklag.offsets")
_TIMEOUT_S: Final = 3.0
"""After this time a batch is recorded without ids."""


class TopicIds:
    """Requests Kafka at most every `metadata_interval_s`, with one request for each cluster; with
    `log_ends` also where a position is beyond the cached end."""

    def __init__(
        self, settings: Settings, timeout_s: float = _TIMEOUT_S, *, log_ends: bool = False
    ) -> None:
        self._log_ends = log_ends
        self._ends: dict[tuple[str, str], dict[int, int]] = {}
        """The high watermark by partition, by `bootstrap_servers` of the settings and topic."""
        self._interval_s = settings.metadata_interval_s
        self._timeout_s = timeout_s
        self._clusters = ClusterNames(settings)
        self._ids: dict[str, dict[str, str]] = defaultdict(dict)
        """Ids by `bootstrap_servers` of the settings, then topic."""
        self._requested_at_s: dict[tuple[str, str], float] = {}

    def get(self, bootstrap_servers: str | None, topic: str) -> str | None:
        """The cached id. None: not known, or no setting names these brokers."""
        access = self._clusters.access_to(bootstrap_servers)
        return self._ids[access.bootstrap_servers].get(topic) if access is not None else None

    def check(self, observation: Observation) -> None:
        """Raises RecordRefused where a position is beyond the known end of its log."""
        for access, topic, offsets in self._positions(observation):
            for number, end in self._beyond(access, topic, offsets):
                where = f"its offset {offsets[number]:,} of {printable(topic)}[{number}]"
                raise RecordRefused(f"{where} is beyond the log end {end:,}")

    def needs_refresh(self, observations: Iterable[Observation]) -> bool:
        """Return whether `refresh` would send a request."""
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
            for access, topic, offsets in self._positions(observation):
                servers = access.bootstrap_servers
                is_old = self._requested_at_s.get((servers, topic), before_s) <= before_s
                if is_old or any(self._beyond(access, topic, offsets)):
                    due.setdefault(servers, (access, set()))[1].add(topic)
        return due

    def _positions(
        self, observation: Observation
    ) -> Iterator[tuple[ClusterAccess, str, Mapping[int, int]]]:
        """The topics on clusters that the settings name, with the query's offsets."""
        for source in observation.sources:
            access = self._clusters.access_to(source.bootstrap_servers)
            if access is not None:
                for topic, offsets in (source.processed or {}).items():
                    yield access, topic, offsets

    def _beyond(
        self, access: ClusterAccess, topic: str, offsets: Mapping[int, int]
    ) -> Iterator[tuple[int, int]]:
        """The partitions whose offset is beyond the cached end, each with that end."""
        ends = self._ends.get((access.bootstrap_servers, topic), {})
        return ((n, ends[n]) for n, offset in offsets.items() if offset > ends.get(n, offset))

    async def _request(self, access: ClusterAccess, topics: set[str]) -> None:
        servers = access.bootstrap_servers
        ids, ends = {}, {}
        try:
            if self._log_ends:
                bounds = await asyncio.wait_for(read_bounds(topics, access), self._timeout_s)
                ids = {name: each.topic_id for name, each in bounds.items() if each.topic_id}
                ends = {name: each.latest for name, each in bounds.items()}
            else:
                ids = await asyncio.wait_for(read_topic_ids(topics, access), self._timeout_s)
        except (*KAFKA_FAILURES, SparklagError) as error:
            _log.debug("cannot read the ids of topics at %s: %s", servers, error)
        cached = self._ids[servers]
        for topic in topics:
            cached.pop(topic, None)
            self._ends[servers, topic] = ends.get(topic, {})
        cached.update(ids)
        self._requested_at_s.update(dict.fromkeys(((servers, t) for t in topics), time.monotonic()))

"""A service in a process of its own, and queries that the test reports to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx

from tests.end_to_end import Topics, service
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.waiting import eventually
from tests.web.reported_query import ReportedQuery

_SETTINGS: Final = """\
[thresholds.".*"]
stall_factor = 1
stall_after_s = 2
"""


class ServiceProcess:
    def __init__(self, url: str, topics: Topics, client: SecondClient) -> None:
        self.url = url
        self._client = client
        self._offsets_topic = topics.environment["SPARKLAG_OFFSETS_TOPIC"]

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    def query(self, topic: str, name: str | None) -> ReportedQuery:
        """One that nobody has reported yet; without a name it is shown by its id."""
        return ReportedQuery(self._client, self._offsets_topic, topic, name)

    async def known_query(self, topic: str, *processed: int) -> ReportedQuery:
        query = self.query(topic, topic)
        query.complete_batch(*processed)
        await eventually(lambda: self.knows(query), "it is known")
        return query

    async def knows(self, query: ReportedQuery) -> bool:
        return await self._status(query) is not None

    async def has_ended(self, query: ReportedQuery) -> bool:
        return await self._status(query) in ("FINISHED", "FAILED")

    async def forget(self, query: ReportedQuery) -> None:
        async with httpx.AsyncClient(timeout=60) as client:
            (await client.delete(f"{self.url}/lag/{query.id}")).raise_for_status()

    async def _status(self, query: ReportedQuery) -> str | None:
        async with httpx.AsyncClient(timeout=60) as client:
            answer = await client.get(f"{self.url}/lag/{query.id}")
        return answer.json()["status"] if answer.is_success else None


@contextmanager
def service_process(
    kafka: LocalKafka, client: SecondClient, folder: Path
) -> Iterator[ServiceProcess]:
    """Ready; its queries stall after seconds. Its log and its settings are in `folder`."""
    topics = Topics(client)
    settings = folder / "sparklag.toml"
    settings.write_text(_SETTINGS)
    with service(topics, kafka, folder / "service.log", "--config", str(settings)) as url:
        yield ServiceProcess(url, topics, client)

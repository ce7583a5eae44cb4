"""Queries as the enricher and its clusters are asked for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

from sparklag_kafka.brokers.leader_channel import WaitGroup
from sparklag_schemas import ResolvedSettings, Settings
from sparklag_schemas.settings import ClusterAccess
from sparklag_service.counters import Counters
from sparklag_service.enrichment.enricher import Enricher
from sparklag_service.enrichment.watched_cluster import WatchedCluster
from sparklag_service.intakes import delivery_queue
from sparklag_service.supervision import Supervisor
from sparklag_service.tracking.query_state import QueryState, TrackedSource
from sparklag_service.tracking.tracked_queries import TrackedQueries
from tests.background_task import background
from tests.waiting import eventually


def query(processed: Mapping[str, list[int]], query_id: str = "query", **fields: Any) -> QueryState:
    position = {topic: dict.fromkeys(numbers, 0) for topic, numbers in processed.items()}
    return of_sources(query_id, source(processed=position, **fields))


def source(index: int = 0, **fields: Any) -> TrackedSource:
    return TrackedSource(
        **{"source": index, "isolation_level": "read_uncommitted", "processed": None, **fields}
    )


def of_sources(query_id: str, *sources: TrackedSource) -> QueryState:
    return QueryState(
        query_id=query_id,
        run_id=query_id,
        query=query_id,
        cluster="default",
        observed_at=0,
        sources=sources,
    )


@asynccontextmanager
async def watching(bootstrap_servers: str, **fields: Any) -> AsyncIterator[WatchedCluster]:
    """A cluster that is kept up to date, with deadlines a slow machine keeps."""
    settings = Settings(**{"measure_timeout_s": 30.0, **fields})
    cluster = WatchedCluster("default", ClusterAccess(bootstrap_servers, settings.kafka), settings)
    async with aclosing(cluster), background(cluster.run()):
        yield cluster


@asynccontextmanager
async def enriching(bootstrap_servers: str, **fields: Any) -> AsyncIterator[Enricher]:
    settings = Settings(**{"measure_timeout_s": 30.0, **fields}).resolved(bootstrap_servers)
    enricher = Enricher(settings, nothing_tracked(settings), Supervisor())
    async with aclosing(enricher), background(enricher.run()):
        yield enricher


def nothing_tracked(settings: ResolvedSettings) -> TrackedQueries:
    counters = Counters()
    return TrackedQueries(settings, delivery_queue(100, counters), counters)


async def ask(cluster: WatchedCluster, state: QueryState) -> None:
    """Ask the cluster for what `state` needs, and wait as the enricher does."""
    measured = asyncio.Event()
    wait_group = WaitGroup(measured.set)
    cluster.request(state, wait_group)
    wait_group.done()
    await measured.wait()


async def measured_until(
    enricher: Enricher, condition: Callable[[], object], what: str, *states: QueryState
) -> None:
    async def holds() -> bool:
        await measured_in_order(enricher, *states)
        return bool(condition())

    await eventually(holds, what)


async def measured_in_order(enricher: Enricher, *states: QueryState) -> list[str]:
    """Ask for these at once; the ids in the order in which they are measured."""
    enricher.request(*states)
    order: list[str] = []
    while len(order) < len(states):
        order += [state.query_id for state in (await enricher.next_measured())[0]]
    return order

"""Scrapes without a service: events in, samples out, read by prometheus_client's own parsers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec
from msgspec.structs import replace
from prometheus_client import Metric
from prometheus_client.openmetrics import parser as open_metrics_parser
from prometheus_client.parser import text_string_to_metric_families

from sparklag_schemas import LagEvent, PartitionLag, Settings, TopicLag
from sparklag_service.enrichment.cluster_offsets import ClusterMetadata
from sparklag_service.instance_state import InstanceState
from sparklag_service.metrics.exposition import Exposition
from sparklag_service.metrics.rendering import Blocks, QuerySeries
from sparklag_service.pipeline import Pipeline
from sparklag_service.view.view import Entry
from tests.service.pipelines import pipeline_of

NOW_MS = 1_790_000_010_000

Labels = dict[str, str]


def settings(clusters: Collection[str] = (), **metrics: Any) -> Settings:
    """Settings with these under `[metrics]`, and these clusters besides the home cluster."""
    others = {name: {"bootstrap_servers": "127.0.0.1:1"} for name in clusters}
    return msgspec.convert({"metrics": metrics, "clusters": others}, Settings)


def topic(name: str = "orders", *partitions: PartitionLag, **fields: Any) -> TopicLag:
    """A topic of source 0 of the home cluster, 65 behind in one partition."""
    known = [p.lag for p in partitions if p.lag is not None]
    return TopicLag(
        **{
            "topic": name,
            "source": 0,
            "partitions": list(partitions) or [partition()],
            "total_lag": (sum(known) if known else None) if partitions else 65,
            **fields,
        }
    )


def partition(number: int = 0, **fields: Any) -> PartitionLag:
    return PartitionLag(
        **{
            "partition": number,
            "processed_offset": 5,
            "latest_offset": 70,
            "earliest_offset": 0,
            "lag": 65,
            "status": "OK",
            **fields,
        }
    )


def text_of(
    series: QuerySeries,
    events: Sequence[LagEvent],
    *,
    owned: Collection[str] | None = None,
    clusters: Mapping[str, ClusterMetadata] | None = None,
    open_metrics: bool = False,
) -> str:
    """The text of a scrape of these events. `owned`: None: all."""
    if owned is None:
        owned = {event.query_id for event in events}

    async def render() -> list[Blocks]:
        rendering = series.render(events, owned, NOW_MS, clusters or {})
        return [block async for blocks in rendering for block in blocks]

    lines = [
        b"".join([family.header(open_metrics=open_metrics), *blocks, b"\n"])
        for family, blocks in asyncio.run(render())
        if any(blocks)
    ]
    return b"".join(lines).decode() + ("# EOF\n" if open_metrics else "")


def show(pipeline: Pipeline, event: LagEvent) -> None:
    pipeline.view.put(Entry(event, b"", time.monotonic(), 0, 0))


def showing(wanted: Settings, *events: LagEvent) -> Pipeline:
    """An instance that does not run: no Kafka is needed."""
    pipeline = pipeline_of(wanted)
    for event in events:
        show(pipeline, event)
    return pipeline


async def exposed_by(pipeline: Pipeline, accept: str = "") -> str:
    answer = await Exposition(InstanceState(pipeline)).render(accept, "")
    return bytes(answer.body).decode()


async def exposed(wanted: Settings, *events: LagEvent) -> str:
    return await exposed_by(showing(wanted, *events))


def parse_text(text: str) -> list[Metric]:
    """Families of an exposition in Prometheus's text format."""
    return list(text_string_to_metric_families(text))


def parse_open(text: str) -> list[Metric]:
    """Families of an exposition in OpenMetrics. It must be right in every detail."""
    parse: Callable[[str], Iterable[Metric]] = open_metrics_parser.text_string_to_metric_families
    return list(parse(text))


class Scrape:
    """Samples by name and labels, from both formats: they must say the same."""

    def __init__(self, series: QuerySeries, *events: LagEvent, **fields: Any) -> None:
        # Each event has an id of its own: what is kept of another is not shown for it.
        events = tuple(replace(event, event_id=uuid4().hex) for event in events)
        text = text_of(series, events, **fields)
        open_text = text_of(series, events, open_metrics=True, **fields)
        self.families = {family.name: family for family in parse_text(text)}
        self.open_families = {family.name: family for family in parse_open(open_text)}
        self.samples = _samples(self.families.values())
        assert self.samples == _samples(self.open_families.values())

    def names(self) -> set[str]:
        return {name for name, _ in self.samples}

    def values(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        return {labels: value for (known, labels), value in self.samples.items() if known == name}

    def only(self, name: str) -> tuple[Labels, float]:
        ((labels, value),) = self.values(name).items()
        return dict(labels), value


def scrape(*events: LagEvent, **metrics: Any) -> Scrape:
    return Scrape(QuerySeries(settings(**metrics)), *events)


def _samples(families: Iterable[Metric]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    result: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in families:
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in result, f"twice: {key}"
            result[key] = sample.value
    return result

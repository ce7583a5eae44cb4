"""The response to a scrape: the service's own metrics, then every query's series."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, fields
from email.message import Message
from functools import partial
from itertools import product
from typing import Final

from prometheus_client import CollectorRegistry, Metric, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.registry import Collector

from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.access.principals import ANYONE, Principal, visible
from sparklag_service.counters import KINDS, Counters
from sparklag_service.enrichment.sampler import RecordTimeCounts
from sparklag_service.metrics.rendering import QuerySeries
from sparklag_service.view.service_state import ServiceState


class ServiceMetrics(Collector):
    """The metrics of one instance, rendered by prometheus_client."""

    def __init__(self, state: ServiceState) -> None:
        self._state = state
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def render(self, *, open_metrics: bool) -> bytes:
        """Returns whole lines; in OpenMetrics without the end marker."""
        if not open_metrics:
            return generate_latest(self._registry)
        encode, _ = choose_encoder("application/openmetrics-text; version=1.0.0")
        return encode(self._registry).removesuffix(b"# EOF\n")

    def collect(self) -> Iterator[Metric]:
        counters, status = self._state.counters, self._state.status()
        meanings = Counters.meanings()
        for name, count in counters.as_dict().items():
            yield CounterMetricFamily(f"sparklag_{name}", meanings[name], value=count)
        refused = CounterMetricFamily(
            "sparklag_refused_messages",
            "Refused messages, by reason; the log has some of them.",
            labels=["topic", "reason"],
        )
        settings, refusals = self._state.settings, counters.refusals.counts
        # A counter that starts at 0 shows its first increase.
        possible = product((settings.offsets_topic, settings.lag_topic), KINDS)
        for topic, reason in sorted({*possible, *refusals}):
            refused.add_metric([topic, reason], refusals[topic, reason])
        yield refused
        restarts = "Restarts of a task after a failure."
        yield _counter("task_restarts", restarts, "task", status.task_restarts)
        failures = "Failures of a stage with one query; one trace of each kind is logged."
        yield _counter("failures", failures, "stage", status.stage_failures)
        used = "Used share of a limit of [limits]; at 1 new input is refused."
        shares = {limit: count / most for limit, (count, most) in status.limit_shares.items()}
        yield _gauge("limit_used_ratio", used, "limit", shares)
        for gauge in fields(status):
            value = getattr(status, gauge.name)
            # Missing is not zero: an unknown value has no sample.
            if "meaning" in gauge.metadata and value is not None:
                yield GaugeMetricFamily(
                    f"sparklag_{gauge.name}", gauge.metadata["meaning"], value=value
                )
        is_up = "Whether a broker of the Kafka cluster responds."
        yield _gauge("cluster_up", is_up, "cluster", status.clusters_up)
        for name, meaning in RecordTimeCounts.meanings().items():
            counts = {cluster: of_all[name] for cluster, of_all in status.record_times.items()}
            yield _counter(f"record_times_{name}", meaning, "cluster", counts)


def _labelled(
    family_type: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    meaning: str,
    label: str,
    values: Mapping[str, float],
) -> Metric:
    family = family_type(f"sparklag_{name}", meaning, labels=[label])
    for label_value, value in values.items():
        family.add_metric([label_value], value)
    return family


_counter, _gauge = partial(_labelled, CounterMetricFamily), partial(_labelled, GaugeMetricFamily)
_OPEN_METRICS: Final = "application/openmetrics-text"
_OPEN_METRICS_TYPE: Final = f"{_OPEN_METRICS}; version=1.0.0; charset=utf-8"
_TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_CHUNK_BYTES: Final = 1024 * 1024
_FASTEST: Final = 1
"""Level 1 makes the text ten times smaller; the next level saves 3 % more."""
_GZIP_FORMAT: Final = 31
_MAX_HEADER: Final = 1_000
_MAX_ACCEPTED: Final = 20
"""Parsed items of a header; each takes 60 µs."""


@dataclass(frozen=True)
class ScrapeResponse:
    """A body and its headers, shared by concurrent scrapes."""

    headers: dict[str, str]
    body: memoryview


class Exposition:
    """Renders Prometheus text or OpenMetrics from memory."""

    def __init__(self, state: ServiceState) -> None:
        self._state = state
        self._service = ServiceMetrics(state)
        self._series = QuerySeries(state.settings)
        self._rendering: dict[tuple[object, bool, bool], asyncio.Task[ScrapeResponse]] = {}
        self._one_at_a_time = asyncio.Lock()

    async def render(
        self, accept: str, accept_encoding: str, principal: Principal = ANYONE
    ) -> ScrapeResponse:
        """Returns the response in the format and encoding that these request headers accept."""
        open_metrics, gzip = wants_open_metrics(accept), wants_gzip(accept_encoding)
        key = principal.limits, open_metrics, gzip
        if key not in self._rendering:
            self._rendering[key] = task = asyncio.create_task(
                self._render(principal, open_metrics=open_metrics, gzip=gzip)
            )
            task.add_done_callback(lambda _: self._rendering.pop(key))
        return await asyncio.shield(self._rendering[key])

    async def _render(
        self, principal: Principal, *, open_metrics: bool, gzip: bool
    ) -> ScrapeResponse:
        headers = {
            "content-type": _OPEN_METRICS_TYPE if open_metrics else _TEXT_TYPE,
            "vary": "accept, accept-encoding",
        }
        compressor = None
        if gzip:
            compressor = zlib.compressobj(_FASTEST, zlib.DEFLATED, _GZIP_FORMAT)
            headers["content-encoding"] = "gzip"
        body = bytearray()
        async with self._one_at_a_time:
            async for chunk in _joined(self._blocks(principal, open_metrics=open_metrics)):
                if compressor is None:
                    body += chunk
                    await asyncio.sleep(0)
                else:
                    # zlib releases the interpreter's lock: the loop continues.
                    body += await asyncio.to_thread(compressor.compress, chunk)
        if compressor is not None:
            body += compressor.flush()
        return ScrapeResponse(headers, memoryview(body))

    async def _blocks(self, principal: Principal, *, open_metrics: bool) -> AsyncIterator[bytes]:
        """The whole text in blocks. A rendered block is released once it is consumed."""
        state = self._state
        if principal.sees_all:
            yield self._service.render(open_metrics=open_metrics)
        # prometheus_client is slow.
        await asyncio.sleep(0)
        async for series in self._series.render(
            [entry.event for entry in visible(state.view, principal)],
            state.owned_queries,
            epoch_ms(),
            state.metadata,
        ):
            series.reverse()
            while series:
                family, of_family = series.pop()
                if any(of_family):
                    yield b"".join([family.header(open_metrics=open_metrics), *of_family, b"\n"])
        if open_metrics:
            yield b"# EOF\n"


async def _joined(blocks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    pending: list[bytes] = []
    size = 0
    async for block in blocks:
        pending.append(block)
        size += len(block)
        if size >= _CHUNK_BYTES:
            yield b"".join(pending)
            pending, size = [], 0
    yield b"".join(pending)


def wants_open_metrics(accept: str) -> bool:
    """Returns whether OpenMetrics is accepted, and no text format is preferred.

    prometheus_client's `choose_encoder` takes the first version from 1.0.0 on, whatever its `q`.
    """
    accepted = _accepted(accept)
    open_metrics = [
        quality
        for value, version, quality in accepted
        if value == _OPEN_METRICS and version in (None, "0.0.1", "1.0.0")
    ]
    text = [quality for value, _, quality in accepted if value in ("text/plain", "text/*", "*/*")]
    return max(open_metrics, default=0.0) > 0 and max(open_metrics) >= max(text, default=0.0)


def wants_gzip(accept_encoding: str) -> bool:
    by_name = {value: quality for value, _, quality in _accepted(accept_encoding)}
    return by_name.get("gzip", by_name.get("*", 0.0)) > 0


def _accepted(header: str) -> list[tuple[str, str | None, float]]:
    """Media types with their versions and qualities. An invalid quality is 0: not accepted."""
    accepted = []
    for part in header[:_MAX_HEADER].lower().split(",")[:_MAX_ACCEPTED]:
        message = Message()
        message["accept"] = part.strip()
        (value, _), *parameters = message.get_params([("", "")], "accept")
        named = dict(parameters)
        try:
            quality = float(named.get("q", 1))
        except (TypeError, ValueError):
            quality = 0.0
        accepted.append((value, named.get("version"), quality))
    return accepted

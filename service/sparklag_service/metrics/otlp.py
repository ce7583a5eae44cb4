"""Pushes this instance's measurements to an OpenTelemetry collector, so that the instances together
push each query once; and the traces of its batches. Off unless `[otlp] endpoint` or `[traces]
endpoint` is set.

A background thread encodes and sends: a slow or unreachable collector only increases a counter.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from sparklag_schemas import Settings, SettingsError
from sparklag_schemas.errors import install_command
from sparklag_schemas.runtime.daemon_threads import DaemonThreads
from sparklag_schemas.runtime.tasks import TimeSlice, repeat
from sparklag_schemas.settings import OtlpSettings, TracesSettings
from sparklag_schemas.text.locations import shown_url
from sparklag_schemas.text.redaction import redact
from sparklag_service.counters import Counters
from sparklag_service.metrics.selection import Selection
from sparklag_service.publishing.traces import PublishedTraces
from sparklag_service.view.service_state import ServiceState

_log = logging.getLogger(__name__)
_LONGEST_REQUEST_S = 10.0
_LAST_PUSH_S: Final = 2.0


def check_otlp(settings: Settings) -> None:
    """Raise SettingsError if an endpoint is set, but OpenTelemetry is not installed."""
    endpoints = {"otlp": settings.otlp.endpoint, "traces": settings.traces.endpoint}
    wanted = [section for section, endpoint in endpoints.items() if endpoint is not None]
    if not wanted:
        return
    try:
        import opentelemetry.exporter.otlp.proto.http.metric_exporter
        import opentelemetry.sdk.metrics  # noqa: F401  # only whether it is there
    except ImportError as error:
        raise SettingsError(
            f"setting {wanted[0]}.endpoint is set, and OpenTelemetry is not installed here:"
            f" {install_command('otel')}"
        ) from error


class OtlpPush(ABC):
    """Pushes every `interval_s`, one push at a time. Create it after `check_otlp`."""

    def __init__(
        self,
        what: str,
        make_exporter: Any,
        settings: OtlpSettings | TracesSettings,
        counters: Counters,
    ) -> None:
        """`make_exporter`: the exporter's class."""
        endpoint = settings.endpoint or ""
        self._what = what
        self._interval_s = settings.interval_s
        self._endpoint = redact(shown_url(endpoint))
        self._exporter = make_exporter(
            endpoint=endpoint, timeout=min(_LONGEST_REQUEST_S, self._interval_s)
        )
        self._counters = counters
        self._threads = DaemonThreads()
        self._failing = False

    async def run(self) -> None:
        try:
            await repeat(self._step, f"pushing {self._what}", self._interval_s)
        finally:
            # A push in flight ends by itself or with the process.
            await self.push_last()
            self._exporter.shutdown()
            self._threads.shutdown()

    async def push_last(self) -> None:
        """Push remaining data, bounded in time. Old metrics are useless."""
        return

    @abstractmethod
    async def push(self) -> None:
        pass

    async def _step(self) -> None:
        due_s = time.monotonic() + self._interval_s
        await self.push()
        await asyncio.sleep(due_s - time.monotonic())

    async def _export(self, batches: Iterable[Any]) -> bool:
        loop = asyncio.get_running_loop()
        failure = await loop.run_in_executor(self._threads, self._export_here, batches)
        if failure is not None:
            self._counters.otlp_failures += 1
            if not self._failing:
                _log.warning(
                    "%s cannot be pushed to %s: %s; trying again every %g s",
                    *(self._what, self._endpoint, failure, self._interval_s),
                )
        elif self._failing:
            _log.info("%s are pushed to %s again", self._what, self._endpoint)
        self._failing = failure is not None
        return not self._failing

    def _export_here(self, batches: Iterable[Any]) -> str | None:
        with _logged_by_this_thread(type(self._exporter).__module__) as messages:
            for batch in batches:
                if self._exporter.export(batch).name != "SUCCESS":
                    return redact(messages[0]) if messages else "no reason given"
        return None


class MetricsPush(OtlpPush):
    """The lag of the queries that this instance measures, and of groups."""

    def __init__(self, state: ServiceState) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        from sparklag_service.metrics.otlp_data import batches

        super().__init__("metrics", OTLPMetricExporter, state.settings.otlp, state.counters)
        self._state = state
        self._selection = Selection(state.settings.metrics)
        self._batches = batches

    async def push(self) -> None:
        events = [entry.event for entry in self._state.view]
        time_slice, owned = TimeSlice(), self._state.owned_queries
        queries = await self._selection.all_queries(events, time_slice)
        measured = [query for query in queries if query.event.query_id in owned]
        groups = await self._selection.groups(queries, owned, time_slice)
        await self._export(self._batches(measured, groups, self._selection, time.time_ns()))


class TracesPush(OtlpPush):
    """The traces of batches whose event this instance published."""

    def __init__(self, state: ServiceState, traces: PublishedTraces) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        from sparklag_service.metrics.otlp_data import batches_of_spans

        super().__init__("traces", OTLPSpanExporter, state.settings.traces, state.counters)
        self._traces = traces
        self._batches = batches_of_spans

    async def push(self) -> None:
        """Push the traces. Those that the collector refuses are pushed again with the same ids."""
        taken = self._traces.take()
        if not taken:
            return
        pushed = False
        try:
            pushed = await self._export(self._batches(taken))
        finally:
            if not pushed:
                self._traces.put_back(taken)

    async def push_last(self) -> None:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.push(), _LAST_PUSH_S)
        if left := self._traces.take():
            self._counters.traces_dropped += len(left)
            _log.warning("shut down before the traces of %d batches were pushed", len(left))


@contextmanager
def _logged_by_this_thread(exporters_log: str) -> Iterator[list[str]]:
    """Collects the exporter's messages instead of logging them: it logs the same text several times
    each interval."""
    messages: list[str] = []
    thread = threading.get_ident()

    def collect(record: logging.LogRecord) -> bool:
        if record.thread != thread:
            return True
        messages.append(record.getMessage())
        return False

    logger = logging.getLogger(exporters_log)
    logger.addFilter(collect)
    try:
        yield messages
    finally:
        logger.removeFilter(collect)

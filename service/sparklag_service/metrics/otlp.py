"""Pushes what this instance measures to an OpenTelemetry collector: together, the instances push
each query once. Off unless `[otlp] endpoint` is set.

A thread that nothing waits for encodes and sends: a collector that is slow, or down, costs the
service nothing but a counter.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sparklag_schemas import Settings, SettingsError
from sparklag_schemas.redaction import redact, shown_url
from sparklag_schemas.runtime.daemon_threads import DaemonThreads
from sparklag_schemas.runtime.tasks import TimeSlice, repeat
from sparklag_service.metrics.scheme import NamedQuery, Selection, Shown
from sparklag_service.view.service_state import ServiceState

_log = logging.getLogger(__name__)
_LONGEST_REQUEST_S = 10.0
_EXPORTERS_LOG = "opentelemetry.exporter.otlp.proto.http.metric_exporter"


def check_otlp(settings: Settings) -> None:
    """Raise SettingsError where metrics are to be pushed, and OpenTelemetry is not installed."""
    if settings.otlp.endpoint is None:
        return
    try:
        import opentelemetry.exporter.otlp.proto.http.metric_exporter
        import opentelemetry.sdk.metrics  # noqa: F401  # only whether it is there
    except ImportError as error:
        raise SettingsError(
            "setting otlp.endpoint is set, and OpenTelemetry is not installed here:"
            " pip install 'sparklag[otel]'"
        ) from error


class OtlpPush:
    """Pushes every `otlp.interval_s`, one push at a time. Create it after `check_otlp`."""

    def __init__(self, state: ServiceState) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        settings = state.settings
        self._state = state
        self._selection = Selection(settings.metrics)
        self._interval_s = settings.otlp.interval_s
        endpoint = settings.otlp.endpoint or ""
        self._endpoint = redact(shown_url(endpoint))
        self._exporter = OTLPMetricExporter(
            endpoint=endpoint, timeout=min(_LONGEST_REQUEST_S, self._interval_s)
        )
        self._threads = DaemonThreads()
        self._failing = False

    async def run(self) -> None:
        """Push until cancelled, whatever happens."""
        try:
            await repeat(self._step, "pushing metrics", self._interval_s)
        finally:
            # A push in flight ends by itself, or with the process.
            self._exporter.shutdown()
            self._threads.shutdown()

    async def _step(self) -> None:
        due_s = time.monotonic() + self._interval_s
        await self._push()
        await asyncio.sleep(due_s - time.monotonic())

    async def _push(self) -> None:
        events = [entry.event for entry in self._state.view]
        time_slice, owned = TimeSlice(), self._state.owned_queries
        queries = await self._selection.all_queries(events, time_slice)
        measured = [query for query in queries if query.event.query_id in owned]
        groups = await self._selection.groups(queries, owned, time_slice)
        loop = asyncio.get_running_loop()
        failure = await loop.run_in_executor(self._threads, self._export, measured, groups)
        if failure is not None:
            self._state.counters.otlp_failures += 1
            if not self._failing:
                _log.warning(
                    "metrics cannot be pushed to %s: %s; trying again every %g s",
                    self._endpoint,
                    failure,
                    self._interval_s,
                )
        elif self._failing:
            _log.info("metrics are pushed to %s again", self._endpoint)
        self._failing = failure is not None

    def _export(self, measured: Sequence[NamedQuery], groups: Shown) -> str | None:
        """In the thread. Why it failed; None where it did not."""
        from opentelemetry.sdk.metrics.export import MetricExportResult

        from sparklag_service.metrics.otlp_data import batches

        with _logged_by_this_thread() as messages:
            for batch in batches(measured, groups, self._selection, time.time_ns()):
                if self._exporter.export(batch) is not MetricExportResult.SUCCESS:
                    return redact(messages[0]) if messages else "no reason given"
        return None


@contextmanager
def _logged_by_this_thread() -> Iterator[list[str]]:
    """The exporter's messages, collected and not logged: it would log the same several times each
    interval."""
    messages: list[str] = []
    thread = threading.get_ident()

    def collect(record: logging.LogRecord) -> bool:
        if record.thread != thread:
            return True
        messages.append(record.getMessage())
        return False

    logger = logging.getLogger(_EXPORTERS_LOG)
    logger.addFilter(collect)
    try:
        yield messages
    finally:
        logger.removeFilter(collect)

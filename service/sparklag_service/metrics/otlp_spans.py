"""The traces of batches in the values of OpenTelemetry's SDK. Its tracers are not used: they make
the ids and take the times, and these spans have theirs from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from sparklag_schemas import headers
from sparklag_schemas.runtime.chunks import by_count
from sparklag_service.metrics.otlp_data import SCOPE
from sparklag_service.publishing.traces import PublishedTrace
from sparklag_service.version import VERSION

_BATCH_TRACES: Final = 500
_KINDS: Final = {
    "callback": SpanKind.INTERNAL,
    "observation": SpanKind.PRODUCER,
    "measured": SpanKind.CONSUMER,
    "published": SpanKind.PRODUCER,
}


def batches_of_spans(traces: Sequence[PublishedTrace]) -> Iterator[list[ReadableSpan]]:
    """The spans of all traces, in parts of a bounded size."""
    # Together with OTEL_RESOURCE_ATTRIBUTES, as everywhere.
    in_driver = Resource.create({"service.name": "sparklag-driver"})
    in_service = Resource.create({"service.name": "sparklag", "service.version": VERSION})
    for chunk in by_count(traces, _BATCH_TRACES):
        spans = []
        for trace in chunk:
            parent = None
            for span in trace.spans:
                context = _context(span.context)
                spans.append(
                    ReadableSpan(
                        span.name,
                        context,
                        parent,
                        in_driver if span.in_driver else in_service,
                        trace.attributes,
                        kind=_KINDS[span.name],
                        start_time=span.began_at * 1_000_000,
                        # The clocks of two machines differ.
                        end_time=max(span.began_at, span.ended_at) * 1_000_000,
                        instrumentation_scope=SCOPE,
                    )
                )
                parent = context
        yield spans


def _context(context: headers.SpanContext) -> SpanContext:
    return SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )

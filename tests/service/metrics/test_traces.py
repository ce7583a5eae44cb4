"""One trace of each batch: from the driver's callback to the event that is acknowledged."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from sparklag_jobs.broker.child_process import free_port
from sparklag_listener.publishing import publish_offsets
from sparklag_listener.stats import Stats
from sparklag_schemas import Observation, Settings
from sparklag_schemas.messages.headers import (
    TRACEPARENT,
    SpanContext,
    batch_trace,
    observation_headers,
    received_trace,
)
from sparklag_schemas.messages.topics import key_of
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.settings import TracesSettings
from sparklag_service.counters import Counters
from sparklag_service.intakes import BatchTrace, Delivery, delivery_queue
from sparklag_service.intakes.in_process import InProcessIntake
from sparklag_service.metrics.otlp import TracesPush
from sparklag_service.publishing import traces
from sparklag_service.publishing.traces import PublishedTraces
from tests.background_task import background
from tests.messages import lag_event, observation, seen
from tests.second_client import SecondClient
from tests.service.instances import instance
from tests.service.metrics.collector import TraceCollector
from tests.waiting import DEADLINE_S, holds

ORDER = ["callback", "observation", "measured", "published"]


def tracing(settings: Settings, endpoint: str) -> Settings:
    return replace(settings, traces=TracesSettings(endpoint=endpoint, interval_s=0.2))


def completed(topic: str, offset: int = 3, **fields: object) -> Observation:
    """A batch of a driver, which gives its observation a UUID."""
    return seen(topic, {0: offset}, observation_id=str(uuid.uuid4()), **fields)


@asynccontextmanager
async def driver(settings: Settings) -> AsyncIterator[NewestQueue[Observation]]:
    queue: NewestQueue[Observation] = NewestQueue(100, key=lambda each: each.query_id)
    async with background(publish_offsets(queue, settings.resolved(), Stats())):
        yield queue


def has_spans(collector: TraceCollector, count: int) -> bool:
    return len(collector.spans()) >= count


def traceparents(client: SecondClient, topic: str, query_id: str) -> list[str]:
    """Traces of a query's records, each once: what is delivered again has the same."""
    records = [r for r in client.read_all(topic) if r.key() == key_of(query_id)]
    result = [dict(record.headers() or ()).get(TRACEPARENT) for record in records]
    return list(dict.fromkeys(value.decode() for value in result if isinstance(value, bytes)))


@pytest.mark.kafka
async def test_a_batch_is_one_trace_of_four_spans_and_the_records_link_to_it(
    service_settings: Settings, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name)
    second_client.produce(topic_name, [b"record"] * 7)
    batches = [completed(topic_name, batch_id=batch) for batch in (41, 42)]
    one_query = [replace(each, query_id=batches[0].query_id) for each in batches]
    with TraceCollector() as collector:
        settings = tracing(service_settings, collector.endpoint)
        async with instance(settings), driver(settings) as queue:
            for number, batch in enumerate(one_query, start=1):
                # Its time is later than that of the one before.
                later = replace(batch, observed_at=batch.observed_at + number)
                queue.put_nowait(later)
                # Else it would be left out for the next one.
                await holds(partial(has_spans, collector, 4 * number), "its trace")
    query_id = one_query[0].query_id
    spans = collector.spans()
    linked = {
        topic: await asyncio.to_thread(traceparents, second_client, topic, query_id)
        for topic in (settings.offsets_topic, settings.lag_topic)
    }
    by_trace = {span.trace_id: [s for s in spans if s.trace_id == span.trace_id] for span in spans}
    assert [*by_trace] == [uuid.UUID(each.observation_id).hex for each in one_query]
    for number, (trace_id, of_batch) in enumerate(by_trace.items()):
        in_order = sorted(of_batch, key=lambda span: ORDER.index(span.name))
        assert [span.name for span in in_order] == ORDER
        assert [span.parent_id for span in in_order] == ["", *(s.span_id for s in in_order[:-1])]
        assert len({span.span_id for span in in_order}) == 4
        services = [span.service for span in in_order]
        assert services == ["sparklag-driver", "sparklag-driver", "sparklag", "sparklag"]
        # All is on one machine here: its clock is the same.
        for span, following in pairwise(in_order):
            assert span.began_ns <= span.ended_ns <= following.ended_ns
            assert span.began_ns <= following.began_ns
        assert in_order[3].attributes["sparklag.batch_id"] == one_query[number].batch_id
        assert in_order[3].attributes["sparklag.query"] == "orders"
        for topic, place in ((settings.offsets_topic, 1), (settings.lag_topic, 3)):
            span = in_order[place]
            assert linked[topic][number] == f"00-{trace_id}-{span.span_id}-01"
    # The refreshes after a batch are of none.
    assert {*map(len, linked.values())} == {2}


UNTRACED = """
import asyncio, json, sys
import msgspec
from sparklag_schemas import Settings
from tests.service.instances import instance
from tests.service.metrics.test_traces import completed, driver
async def run(settings, topic, query_id):
    async with instance(settings) as (pipeline, _), driver(settings) as queue:
        queue.put_nowait(completed(topic, query_id=query_id))
        while pipeline.view.get(query_id) is None:
            await asyncio.sleep(0.05)
settings = msgspec.json.decode(sys.argv[1], type=Settings)
# These tests import the collector's protocol.
for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
    del sys.modules[name]
asyncio.run(run(settings, *sys.argv[2:]))
print(json.dumps([name for name in sys.modules if name.startswith("opentelemetry")]))
"""


@pytest.mark.kafka
async def test_without_traces_there_is_no_header_and_opentelemetry_is_not_imported(
    service_settings: Settings, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name)
    query_id = str(uuid.uuid4())
    document = msgspec.json.encode(service_settings).decode()
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", UNTRACED, document, topic_name, query_id],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "[]\n"
    for topic in (service_settings.offsets_topic, service_settings.lag_topic):
        records = await asyncio.to_thread(second_client.read_all, topic)
        assert any(record.key() == key_of(query_id) for record in records)
        assert traceparents(second_client, topic, query_id) == []


async def test_in_a_driver_with_the_service_in_it_the_observation_has_the_same_trace() -> None:
    counters = Counters()
    deliveries: NewestQueue[Delivery] = delivery_queue(10, counters)
    source: NewestQueue[Observation] = NewestQueue(10, key=lambda each: each.query_id)

    class Handler:
        async def on_revoked(self) -> None: ...

        def tracks(self, query_id: str) -> bool:
            return False

        async def on_assigned(self) -> None: ...

    stats = Stats()
    intake = InProcessIntake(source, stats, deliveries, True)
    async with background(intake.run(Handler())):
        batch = completed("orders")
        for each in (batch, completed("orders", cause="refresh")):
            source.put_nowait(each)
        first, second = [await deliveries.get(), await deliveries.get()]
    assert first.trace is not None
    assert first.trace.context == batch_trace(batch)
    assert second.trace is None


def test_only_a_completed_batch_with_an_id_of_ours_begins_a_trace() -> None:
    batch = completed("orders")
    assert TRACEPARENT in dict(observation_headers(batch, traced=True))
    assert TRACEPARENT not in dict(observation_headers(batch))
    for other in (completed("orders", cause="idle"), observation(observation_id="0b5e")):
        assert TRACEPARENT not in dict(observation_headers(other, traced=True))


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"00-0123",
        b"00-" + b"0" * 32 + b"-0123456789abcdef-01",
        b"00-0123456789abcdef0123456789abcdef-" + b"0" * 16 + b"-01",
        b"00-0123456789abcdef0123456789abcdef-0123456789abcdef-00",
        b"00-0123456789ABCDEF0123456789ABCDEF-0123456789ABCDEF-01",
        b"00-0123456789abcdef0123456789abcdef-0123456789abcdef-01\n",
        b"\xff" * 55,
    ],
)
def test_a_header_that_is_no_sampled_context_is_ignored(value: bytes | None) -> None:
    assert received_trace([(TRACEPARENT, value)]) is None


async def test_while_the_collector_is_away_the_newest_are_kept_and_the_others_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(traces, "_KEPT", 3)
    port = free_port()
    settings = tracing(Settings(), f"http://127.0.0.1:{port}/v1/traces")

    state: Any = SimpleNamespace(settings=settings, counters=Counters())
    kept = PublishedTraces(state.counters)
    for number in range(5):
        context = SpanContext(f"{number + 1:032x}", f"{1:016x}")
        kept.add(BatchTrace(context, 1, 2), completed("orders"), lag_event())
    push = TracesPush(state, kept)
    with caplog.at_level(logging.WARNING):
        await push.push()
    assert "traces cannot be pushed to " in caplog.text
    assert state.counters.traces_dropped == 2
    with TraceCollector(port) as collector:
        await push.push()
    assert {int(span.trace_id, 16) for span in collector.spans()} == {3, 4, 5}
    await push.push_last()
    assert state.counters.traces_dropped == 2

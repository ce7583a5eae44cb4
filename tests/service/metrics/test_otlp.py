"""Metrics pushed to an OpenTelemetry collector, received as a collector receives them."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from werkzeug import Request, Response

from sparklag_jobs.broker.child_process import free_port
from sparklag_schemas import LagEvent, Settings, SettingsError, load_settings
from sparklag_schemas.messages.observation import ConsumerGroup
from sparklag_schemas.settings import OtlpSettings
from sparklag_service.instance_state import InstanceState
from sparklag_service.metrics import otlp
from sparklag_service.metrics.otlp import MetricsPush, check_otlp
from sparklag_service.pipeline import Pipeline
from tests.background_task import background
from tests.http_server import HttpServer
from tests.logged import logged
from tests.messages import lag_event, seen
from tests.second_client import SecondClient
from tests.service.conftest import send
from tests.service.instances import instance
from tests.service.metrics.collector import Collector
from tests.service.metrics.scraped import partition, show, showing, topic
from tests.service.metrics.test_native import FAMILIES, QUERY, full_event
from tests.waiting import DEADLINE_S, holds


def pushing_to(
    endpoint: str, *events: LagEvent, interval_s: float = 0.1, **metrics: Any
) -> Pipeline:
    """A pipeline that is not running, and measures these queries."""
    wanted = {"otlp": {"endpoint": endpoint, "interval_s": interval_s}, "metrics": metrics}
    pipeline = showing(msgspec.convert(wanted, Settings), *events)
    for event in events:
        pipeline.tracked.adopt(event, 0.0)
    return pipeline


@asynccontextmanager
async def pushing(pipeline: Pipeline) -> AsyncIterator[None]:
    async with background(MetricsPush(InstanceState(pipeline)).run()):
        yield


async def test_sparklags_own_metrics_come_under_their_names_with_their_units() -> None:
    with Collector() as collector:
        async with pushing(pushing_to(collector.endpoint, full_event())):
            await holds(collector.points, "a push")
    points = collector.points()
    own = {name.replace(".", "_") for name in points if name.startswith("sparklag.")}
    assert own == {family.name for family in FAMILIES}
    lag = points["sparklag.query.lag"][0]
    assert (lag.unit, lag.attributes, lag.value) == ("", QUERY, 75)
    assert lag.resource["service.name"] == "sparklag"
    assert points["sparklag.query.lag_seconds"][0].unit == "s"
    assert points["sparklag.query.state_memory_bytes"][0].unit == "By"
    assert points["sparklag.query.status"][0].attributes == {**QUERY, "status": "STALL"}
    assert points["sparklag.query.rate_limited"][0].value == 1
    first = points["sparklag.partition.lag"][0]
    assert first.attributes == {**QUERY, "topic": "orders", "partition": 0}


async def test_the_kafkametrics_receivers_names_carry_queries_as_groups() -> None:
    event = lag_event(
        topics=[
            topic("orders", partition(0), partition(1, processed_offset=None, lag=None)),
            topic("eastern", cluster="east", source=1),
        ],
        group=ConsumerGroup(members=3),
    )
    with Collector() as collector:
        async with pushing(pushing_to(collector.endpoint, event)):
            await holds(collector.points, "a push")
    points = collector.points()
    group = {"group": "orders", "topic": "orders"}
    wanted: dict[str, list[tuple[dict[str, Any], int]]] = {
        "kafka.consumer_group.members": [({"group": "orders"}, 3)],
        "kafka.consumer_group.lag": [({**group, "partition": 0}, 65)],
        "kafka.consumer_group.offset": [({**group, "partition": 0}, 5)],
        "kafka.consumer_group.lag_sum": [(group, 65)],
        "kafka.consumer_group.offset_sum": [(group, 5)],
        "kafka.partition.current_offset": [
            ({"topic": "orders", "partition": 0}, 70),
            ({"topic": "orders", "partition": 1}, 70),
        ],
        "kafka.partition.oldest_offset": [
            ({"topic": "orders", "partition": 0}, 0),
            ({"topic": "orders", "partition": 1}, 0),
        ],
    }
    assert {name for name in points if name.startswith("kafka.")} == {*wanted}
    for name, expected in wanted.items():
        result = [
            (point.attributes, point.value)
            for point in points[name]
            if point.resource["kafka.cluster.alias"] == "default"
        ]
        # It may have been pushed more than once.
        assert result[: len(expected)] == expected
        # A group is of one cluster.
        clusters = {"default"} if name.endswith("members") else {"default", "east"}
        assert {point.resource["kafka.cluster.alias"] for point in points[name]} == clusters
        assert {point.unit for point in points[name]} == {"1"}


async def test_only_what_this_instance_measures_is_pushed_and_only_while_it_does() -> None:
    with Collector() as collector:
        pipeline = pushing_to(collector.endpoint, lag_event(query_id="mine", query="mine"))
        other = lag_event(query_id="other", query="other")
        show(pipeline, other)
        async with pushing(pipeline):
            await holds(collector.points, "a push")
            pipeline.tracked.release("mine")
            pipeline.tracked.adopt(other, 0.0)
            await holds(lambda: "other" in ids(collector), "the other query")
            before = len(collector.requests)
            await holds(lambda: len(collector.requests) > before + 1, "one more push")
    assert ids(collector, since=before + 1) == {"other"}


def ids(collector: Collector, since: int = 0) -> set[str]:
    points = collector.points(since=since).get("sparklag.query.lag", ())
    return {point.attributes["query_id"] for point in points}


async def test_granularity_and_patterns_are_those_of_metrics() -> None:
    event = lag_event(topics=[topic("orders"), topic("hidden")])
    with Collector() as collector:
        pipeline = pushing_to(
            collector.endpoint, event, granularity="topic", exclude_topics=["hidden"]
        )
        async with pushing(pipeline):
            await holds(collector.points, "a push")
    points = collector.points()
    assert "sparklag.topic.lag" in points
    everything = [point.attributes for each in points.values() for point in each]
    assert {attributes.get("topic") for attributes in everything} == {None, "orders"}
    assert not any("partition" in attributes for attributes in everything)


async def test_many_partitions_go_in_requests_of_bounded_size_and_none_is_missing() -> None:
    event = lag_event(topics=[topic("wide", *(partition(n, lag=n) for n in range(500)))])
    with Collector() as collector:
        async with pushing(pushing_to(collector.endpoint, event)):
            await holds(
                lambda: len(collector.points().get("kafka.partition.oldest_offset", ())) >= 500,
                "the last metric",
            )
    lags = {
        point.attributes["partition"]: point.value
        for point in collector.points()["kafka.consumer_group.lag"]
    }
    assert len(collector.requests) > 1
    assert lags == {n: n for n in range(500)}
    assert max(request.ByteSize() for request in collector.requests) < 4_000_000


async def test_an_absent_collector_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    port = free_port()
    endpoint = f"http://somebody:secret@127.0.0.1:{port}/v1/metrics"
    pipeline = pushing_to(endpoint, lag_event())
    async with pushing(pipeline):
        await holds(lambda: pipeline.counters.otlp_failures >= 3, "three failures")
        with Collector(port) as collector:
            await holds(lambda: collector.requests, "a push")
            await holds(lambda: "metrics are pushed to" in caplog.text, "the good news")
    output = logged(caplog)
    assert len(output) == 2
    shown = f"http://***@127.0.0.1:{port}/v1/metrics"
    assert output[0].startswith(f"metrics cannot be pushed to {shown}: ")
    assert output[1] == f"metrics are pushed to {shown} again"
    for hidden in ("somebody", "secret"):
        assert hidden not in caplog.text
    assert not [r for r in caplog.records if r.name.startswith("opentelemetry")]


async def test_a_hanging_collector_does_not_delay_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "_LONGEST_REQUEST_S", 10 * DEADLINE_S)
    requested, ended = threading.Event(), threading.Event()

    def respond(_: Request) -> Response:
        requested.set()
        ended.wait()
        return Response()

    with HttpServer(respond) as collector, ExitStack() as exits:
        exits.callback(ended.set)
        pipeline = pushing_to(collector.url, lag_event(), interval_s=10 * DEADLINE_S)
        async with pushing(pipeline):
            await holds(requested.is_set, "the request")
            ending_s = time.monotonic()
        assert time.monotonic() - ending_s < DEADLINE_S


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        ("collector:4318", "otlp.endpoint = 'collector:4318': takes the address of OTLP"),
        ("user:secret@collector", "otlp.endpoint = '***@collector': takes the address of OTLP"),
        (
            "grpc://somebody:secret@collector:4317",
            "otlp.endpoint = 'grpc://***@collector:4317': takes the address of OTLP",
        ),
    ],
)
def test_an_endpoint_that_is_no_otlp_over_http_is_named(endpoint: str, message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(environ={"SPARKLAG_OTLP__ENDPOINT": endpoint})
    assert message in str(refused.value)
    for hidden in ("somebody", "secret"):
        assert hidden not in str(refused.value)


def test_without_the_extra_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # Python's own way to say that a module is not there.
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    check_otlp(Settings())
    with pytest.raises(SettingsError, match=r"pip install 'sparklag\[otel\]'"):
        check_otlp(msgspec.convert({"otlp": {"endpoint": "http://c:4318/v1/metrics"}}, Settings))


@pytest.mark.kafka
async def test_a_real_service_pushes_what_it_measures(
    service_settings: Settings, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name)
    second_client.produce(topic_name, [b"record"] * 7)
    observation = seen(topic_name, {0: 3})

    def lags(collector: Collector) -> list[float]:
        return [p.value for p in collector.points().get("kafka.consumer_group.lag", ())]

    with Collector() as collector:
        push = OtlpSettings(endpoint=collector.endpoint, interval_s=0.5)
        async with instance(replace(service_settings, otlp=push)):
            send(second_client, service_settings.offsets_topic, observation)
            await holds(lambda: 4 in lags(collector), "the lag at the collector")

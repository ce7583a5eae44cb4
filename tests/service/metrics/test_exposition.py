"""`GET /metrics` over a real connection: formats, compression, and promtool's verdict."""

from __future__ import annotations

import asyncio
import gzip
import subprocess
from pathlib import Path

import httpx
import pytest

from sparklag_schemas import LagEvent
from sparklag_service.instance_state import InstanceState
from sparklag_service.metrics.exposition import Exposition, wants_gzip, wants_open_metrics
from sparklag_service.pipeline import Pipeline
from tests.deploy.programs import Programs
from tests.messages import lag_event
from tests.service.metrics.scraped import (
    NOW_MS,
    exposed,
    exposed_by,
    parse_open,
    parse_text,
    partition,
    settings,
    show,
    showing,
    topic,
)
from tests.service.metrics.test_native import full_event

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
COMPAT = ["kafka-lag-exporter", "kafka_exporter"]
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1"
    ";q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/"
    "openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


def promtool_reports(promtool: Path, text: bytes) -> list[str]:
    done = subprocess.run(
        [promtool, "check", "metrics"],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=240,
        check=False,
    )
    objections = done.stdout.decode().splitlines()
    # 3: it read all of it, and objects to names.
    assert done.returncode in (0, 3), objections
    return objections


@pytest.fixture
async def pipeline() -> Pipeline:
    events = (full_event(), lag_event(query_id="b", query=None))
    pipeline = showing(settings(compat=COMPAT), *events)
    for event in events:
        pipeline.tracked.adopt(event, 0.0)
    return pipeline


async def test_both_formats_hold_the_series_of_service_and_queries(http: httpx.AsyncClient) -> None:
    text = await http.get("/metrics", headers={"accept": "text/plain"})
    assert text.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    open_text = await http.get("/metrics", headers={"accept": OPEN_METRICS})
    assert open_text.headers["content-type"] == f"{OPEN_METRICS}; charset=utf-8"
    assert open_text.text.endswith("\n# EOF\n")
    assert "# EOF" not in text.text
    names = {family.name for family in parse_text(text.text)}
    assert names >= {
        "sparklag_ready",
        "sparklag_observations",
        "process_cpu_seconds",
        "sparklag_partition_lag",
        "kafka_consumergroup_lag",
        "kafka_consumergroup_group_lag",
    }
    open_families = {family.name: family for family in parse_open(open_text.text)}
    assert {name.removesuffix("_info") for name in names} == {
        name.removesuffix("_info") for name in open_families
    }
    (counter,) = open_families["sparklag_observations"].samples
    assert counter.name == "sparklag_observations_total"


async def test_a_compressed_answer_is_the_same(http: httpx.AsyncClient) -> None:
    async with http.stream("GET", "/metrics", headers={"accept-encoding": "gzip"}) as answer:
        raw = b"".join([piece async for piece in answer.aiter_raw()])
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["vary"] == "accept, accept-encoding"
    assert int(answer.headers["content-length"]) == len(raw)
    plain = await http.get("/metrics", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert int(plain.headers["content-length"]) == len(plain.content)

    def of_queries(text: str) -> list[str]:
        # Two moments: what the process took, and how old all is, differ.
        return [
            line
            for line in text.splitlines()
            if line.startswith(("sparklag_", "kafka_")) and "_age_seconds" not in line
        ]

    assert of_queries(gzip.decompress(raw).decode()) == of_queries(plain.text)


async def test_two_scrapes_at_once_are_each_whole_while_events_come() -> None:
    def events(lag: int) -> list[LagEvent]:
        # One partition more each time: labels change too.
        return [
            lag_event(
                event_id=f"{number} {lag}",
                query_id=str(number),
                query=f"q{number}",
                observed_at=NOW_MS + lag,
                topics=[topic("orders", *(partition(n, lag=lag) for n in range(1_000 + lag)))],
            )
            for number in range(4)
        ]

    pipeline = showing(settings(), *events(0))
    exposition = Exposition(InstanceState(pipeline))

    scrapes = await asyncio.gather(*(exposition.render("", "gzip") for _ in range(10)))
    assert len({id(scrape.body) for scrape in scrapes}) == 1

    async def scrape() -> set[tuple[int, int]]:
        """How many partitions of each query, and their lag: of one moment, one pair."""
        answer = await exposition.render("", "")
        text = bytes(answer.body).decode()
        values: dict[str, list[str]] = {}
        for line in text.splitlines():
            if line.startswith("sparklag_partition_lag{"):
                labels, _, value = line.rpartition(" ")
                values.setdefault(labels.partition('query="')[2].partition('"')[0], []).append(
                    value
                )
        assert len(values) == 4
        return {(len(lags), int(lag)) for lags in values.values() for lag in lags}

    async def change() -> None:
        for lag in range(1, 4):
            for event in events(lag):
                show(pipeline, event)
                # The scrapes have their turns between two of them.
                await asyncio.sleep(0)

    changing = asyncio.create_task(change())
    for pairs in await asyncio.gather(*(scrape() for _ in range(4))):
        assert all(count == 1_000 + lag for count, lag in pairs)
    await changing
    assert await scrape() == {(1_003, 3)}


async def test_only_owned_queries_are_shown_where_that_is_requested() -> None:
    pipeline = showing(settings(queries="owned"), lag_event(), lag_event(query_id="b"))
    pipeline.tracked.adopt(lag_event(query_id="b"), 0.0)
    text = await exposed_by(pipeline)
    lags = [line for line in text.splitlines() if line.startswith("sparklag_query_lag{")]
    assert len(lags) == 1
    assert 'query_id="b"' in lags[0]


async def test_an_empty_view_is_no_error_in_either_format() -> None:
    for accept, end in (("", "\n"), (OPEN_METRICS, "# EOF\n")):
        text = await exposed_by(showing(settings(compat=COMPAT)), accept)
        assert text.endswith(end)
        assert "sparklag_query_" not in text


@pytest.mark.packaging
async def test_promtool_has_nothing_to_say_of_our_own_names(programs: Programs) -> None:
    text = await exposed(settings(), full_event())
    assert await asyncio.to_thread(promtool_reports, programs.promtool, text.encode()) == []


@pytest.mark.packaging
async def test_promtool_dislikes_what_the_other_tools_are_known_for(programs: Programs) -> None:
    text = await exposed(settings(compat=COMPAT), full_event())
    objections = await asyncio.to_thread(promtool_reports, programs.promtool, text.encode())
    assert {line.partition(" ")[0] for line in objections} <= {
        "kafka_consumergroup_lag_sum",
        "kafka_consumergroup_current_offset_sum",
    }


@pytest.mark.parametrize(
    ("accept", "open_metrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/html,*/*;q=0.8", False),
        ("text/plain;version=0.0.4", False),
        ("application/openmetrics-text", True),
        ("Application/OpenMetrics-Text; version=1.0.0; charset=utf-8", True),
        ("application/openmetrics-text;version=2.0.0", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=0.2,text/plain;q=0.9", False),
        ("application/openmetrics-text;q=nonsense", False),
        ("application/openmetrics-text;q*=utf-8''1", False),
        (PROMETHEUS_2, True),
        (PROMETHEUS_3, True),
    ],
)
def test_open_metrics_goes_to_whoever_likes_it_best(accept: str, open_metrics: bool) -> None:
    assert wants_open_metrics(accept) is open_metrics


@pytest.mark.parametrize(
    ("accept_encoding", "gzip"),
    [
        ("", False),
        ("identity", False),
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("*", True),
        ("gzip;q=0, *", False),
    ],
)
def test_gzip_goes_to_whoever_accepts_it(accept_encoding: str, gzip: bool) -> None:
    assert wants_gzip(accept_encoding) is gzip

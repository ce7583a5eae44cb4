"""What fails, as `/health/ready`, `GET /lag` and requests for unknown queries tell it."""

from __future__ import annotations

import pytest

from sparklag_schemas import Settings
from sparklag_service.pipeline import Pipeline
from tests.service.pipelines import complete_pipeline_of, pipeline_of
from tests.service.rest_client import rest_client

HERE, ELSEWHERE = "127.0.0.1", "10.1.2.3"
REASON = "cannot read topic consumer-lag: no right to it"


@pytest.fixture
async def incomplete() -> Pipeline:
    """An instance whose view cannot be read, and that refused a message."""
    pipeline = pipeline_of(Settings())
    pipeline.view_reader.ready = REASON
    pipeline.counters.refusals.add("processed-offsets", "malformed", "message: no JSON", None)
    return pipeline


async def test_before_everything_is_there_it_is_live_and_not_ready() -> None:
    async with rest_client(pipeline_of(Settings())) as http:
        assert (await http.get("/health/live")).status_code == 200
        ready = await http.get("/health/ready")
    assert ready.status_code == 503
    assert set(ready.json()["failing"]) == {"topics", "intake", "view"}


async def test_the_list_of_queries_shows_what_fails_as_readiness_does(incomplete: Pipeline) -> None:
    for address in (HERE, ELSEWHERE):
        async with rest_client(incomplete, address) as http:
            ready, listed = (await http.get("/health/ready")).json(), await http.get("/lag")
        assert listed.status_code == 200
        for kind in ("failing", "degraded"):
            assert ready[kind] == listed.json()[kind] != {}


async def test_strangers_learn_what_is_not_ready_and_not_why(incomplete: Pipeline) -> None:
    async with rest_client(incomplete) as http:
        own = (await http.get("/lag")).json()
    assert own["failing"]["view"] == REASON
    async with rest_client(incomplete, ELSEWHERE) as http:
        answer = await http.get("/lag")
        unknown = await http.get("/lag/orders")
    failing = answer.json()["failing"]
    assert set(failing) == set(own["failing"])
    assert len(set(failing.values())) == 1
    assert unknown.json()["failing"] == failing
    for reason in (REASON, *own["degraded"], *own["degraded"].values()):
        assert reason not in answer.text + unknown.text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/lag/orders"),
        ("GET", "/lag/orders/history"),
        ("GET", "/lag/orders/stream"),
        ("DELETE", "/lag/orders"),
    ],
)
async def test_a_query_that_may_be_missing_from_the_view_is_not_called_unknown(
    method: str, path: str, incomplete: Pipeline
) -> None:
    async with rest_client(incomplete) as http:
        answer = await http.request(method, path)
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (503, "tag:sparklag,2026:problem/not-ready")
    assert answer.headers["retry-after"] == "2"
    assert problem["failing"]["view"] == REASON
    assert f"view: {REASON}" in problem["detail"]
    async with rest_client(complete_pipeline_of(Settings())) as http:
        answer = await http.request(method, path)
    assert (answer.status_code, "retry-after" in answer.headers) == (404, False)

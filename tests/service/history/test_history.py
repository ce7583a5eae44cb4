"""`GET /lag/{query}/history` over real HTTP, of what came in while the service ran."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import jsonschema
import pytest

from sparklag_schemas import Batch
from sparklag_schemas.settings import HistorySettings
from sparklag_schemas.timestamps import epoch_ms
from tests.messages import lag_event
from tests.service.live.live_server import LiveServer, live_server
from tests.waiting import DEADLINE_S

MINUTE_MS = 60_000


@pytest.fixture
async def http(live: LiveServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=live.url, timeout=DEADLINE_S) as client:
        yield client


def measured(live: LiveServer, ago_ms: int, **fields: Any) -> None:
    at_ms = epoch_ms() - ago_ms
    live.show(lag_event(measured_at=at_ms, observed_at=at_ms, **fields))


async def test_a_step_has_its_last_and_highest(live: LiveServer, http: httpx.AsyncClient) -> None:
    # Whole steps of five minutes, the newest of which is over.
    begin_ms = (epoch_ms() // (5 * MINUTE_MS) - 4) * 5 * MINUTE_MS
    for minute, lag in ((0, 10), (1, 90), (2, 20), (11, None)):
        measured(
            live,
            epoch_ms() - begin_ms - minute * MINUTE_MS,
            total_lag=lag,
            max_time_lag_s=None if lag is None else lag / 10,
            input_rate=None if lag is None else 7.25,
            status="UNKNOWN" if lag is None else "WARN" if lag == 90 else "OK",
        )
    answer = await http.get("/lag/orders/history", params={"since": begin_ms, "step": "5m"})
    page = answer.json()
    assert (answer.status_code, page["step_s"], page["since"]) == (200, 300.0, begin_ms)
    first, second = page["points"]
    measured_at = first.pop("measured_at")
    assert 0 <= measured_at - begin_ms - 2 * MINUTE_MS < MINUTE_MS
    assert first == {
        "at": begin_ms,
        "total_lag": 20,
        "max_total_lag": 90,
        "max_time_lag_s": 9.0,
        "input_rate": 7.25,
        "processed_rate": None,
        "status": "OK",
        "batch": None,
    }
    assert (second["at"], second["total_lag"]) == (begin_ms + 10 * MINUTE_MS, None)
    assert (second["max_time_lag_s"], second["status"]) == (None, "UNKNOWN")


async def test_an_answer_has_at_most_a_thousand_points_however_short_the_step(
    live: LiveServer, http: httpx.AsyncClient
) -> None:
    for ago_ms in range(24 * 60 * MINUTE_MS, 0, -MINUTE_MS):
        measured(live, ago_ms)
    page = (await http.get("/lag/orders/history", params={"since": "1d", "step": "1"})).json()
    assert page["step_s"] == 240.0
    assert 355 <= len(page["points"]) <= 361
    recent = (await http.get("/lag/orders/history", params={"since": "2h", "step": "1"})).json()
    assert recent["step_s"] == 15.0
    assert 115 <= len(recent["points"]) <= 121


async def test_it_shows_how_far_back_it_reaches(live: LiveServer, http: httpx.AsyncClient) -> None:
    began_ms = epoch_ms()
    live.pipeline.view_reader.feed.begin({0: 0}, {0: 0})
    measured(live, 0)
    page = (await http.get("/lag/orders/history")).json()
    assert began_ms <= page["complete_since"] <= epoch_ms()
    assert page["reason"] is None


async def test_it_goes_with_the_query(live: LiveServer, http: httpx.AsyncClient) -> None:
    measured(live, 60_000, query_id="a", query="orders")
    live.forget("a")
    assert (await http.get("/lag/a/history")).status_code == 404
    # And is not there again when the query is.
    measured(live, 0, query_id="a", query="orders")
    assert len((await http.get("/lag/orders/history")).json()["points"]) == 1


async def test_one_query_more_than_there_is_room_for_is_reported_so() -> None:
    async with live_server(history=HistorySettings(memory_mb=1)) as live:
        async with httpx.AsyncClient(base_url=live.url, timeout=DEADLINE_S) as http:
            for number in range(400):
                measured(live, 0, query_id=f"{number}", query=f"{number}")
            first = (await http.get("/lag/0/history")).json()
            last = (await http.get("/lag/399/history")).json()
        assert (len(first["points"]), last["points"]) == (1, [])
        assert last["reason"] == "there are more queries than history.memory_mb has room for"
        assert live.pipeline.counters.history_left_out > 100


@pytest.mark.parametrize(
    ("parameters", "named"),
    [({"since": "soon"}, "since"), ({"until": "x"}, "until"), ({"step": "0"}, "step")],
)
async def test_a_wrong_parameter_is_named(
    live: LiveServer, http: httpx.AsyncClient, parameters: dict[str, str], named: str
) -> None:
    measured(live, 0)
    answer = await http.get("/lag/orders/history", params=parameters)
    assert answer.status_code == 422
    assert answer.json()["type"].endswith("/invalid-parameter")
    assert answer.json()["detail"].startswith(f"{named}: ")


async def test_unknown_and_ambiguous_names_fail(live: LiveServer, http: httpx.AsyncClient) -> None:
    measured(live, 0, query_id="a")
    measured(live, 0, query_id="b")
    assert (await http.get("/lag/nothing/history")).status_code == 404
    assert (await http.get("/lag/orders/history")).json()["query_ids"] == ["a", "b"]


async def test_the_answer_is_as_documented(live: LiveServer, http: httpx.AsyncClient) -> None:
    batch = Batch(started_at=0, rows=1, duration_ms=12, phases_ms={"addBatch": 5})
    measured(live, 0, batch=batch, cause="progress")
    document = (await http.get("/openapi.json")).json()
    content = document["paths"]["/lag/{query}/history"]["get"]["responses"]["200"]["content"]
    page = (await http.get("/lag/orders/history")).json()
    schema = {**content["application/json"]["schema"], "components": document["components"]}
    jsonschema.validate(page, schema)
    (point,) = page["points"]
    assert (point["batch"]["duration_ms"], point["batch"]["processing_ms"]) == (12, 5)
    assert (
        "text/event-stream" in (document["paths"]["/stream"]["get"]["responses"]["200"]["content"])
    )

"""The REST interface: documents byte for byte, and errors that a program can tell apart."""

from __future__ import annotations

import json

import httpx
import jsonschema
import pytest

from sparklag_schemas.rest_interface import path_segment
from sparklag_service.pipeline import Pipeline
from tests.messages import QUERY_ID
from tests.service.pipelines import show


@pytest.mark.parametrize("name", ["orders", QUERY_ID])
async def test_a_query_is_answered_by_name_and_by_id_with_the_very_document(
    http: httpx.AsyncClient, pipeline: Pipeline, name: str
) -> None:
    document = show(pipeline)
    answer = await http.get(f"/lag/{name}")
    assert (answer.status_code, answer.content) == (200, document)
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "name", ["a/b", "/", "a%2Fb", "..", ".", "a/../b", "100%", "a/history", "ö & co?"]
)
async def test_a_name_is_one_segment_of_the_path_whatever_is_in_it(
    http: httpx.AsyncClient, pipeline: Pipeline, name: str
) -> None:
    document = show(pipeline, query=name)
    answer = await http.get(f"/lag/{path_segment(name)}")
    assert (answer.status_code, answer.content) == (200, document)
    history = await http.get(f"/lag/{path_segment(name)}/history")
    assert history.json()["query"] == name


@pytest.mark.parametrize(
    ("wanted", "alike"), [("nothing", {}), ("ordres", {"alike": ["orders", "orders-eu"]})]
)
async def test_an_unknown_query_is_a_problem_document_with_the_names_that_are_alike(
    http: httpx.AsyncClient, pipeline: Pipeline, wanted: str, alike: dict[str, list[str]]
) -> None:
    for name in ("payments", "orders-eu", "orders"):
        show(pipeline, query_id=name, query=name)
    answer = await http.get(f"/lag/{wanted}")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "tag:sparklag,2026:problem/unknown-query",
        "title": "Unknown query",
        "status": 404,
        "detail": f"no query has the name or id {wanted!r}",
        **alike,
    }


async def test_an_ambiguous_name_lists_ids(http: httpx.AsyncClient, pipeline: Pipeline) -> None:
    show(pipeline, query_id="b")
    show(pipeline, query_id="a")
    answer = await http.get("/lag/orders")
    assert answer.status_code == 409
    assert answer.json()["query_ids"] == ["a", "b"]
    assert (await http.get("/lag/a")).status_code == 200


async def test_the_list_is_paged_and_filtered(http: httpx.AsyncClient, pipeline: Pipeline) -> None:
    listed = (await http.get("/lag")).json()
    assert (listed["queries"], listed["next_cursor"]) == ([], None)
    for number in range(5):
        show(pipeline, query_id=f"id-{number}", query=f"q{number}", status="OK")
    show(pipeline, query_id="bad", query="bad", status="FAILED")
    first = (await http.get("/lag", params={"status": "OK", "limit": 3})).json()
    rest = (await http.get("/lag", params={"status": "OK", "cursor": first["next_cursor"]})).json()
    names = [query["query"] for query in first["queries"] + rest["queries"]]
    assert names == ["q0", "q1", "q2", "q3", "q4"]
    assert rest["next_cursor"] is None
    (failed,) = (await http.get("/lag", params={"status": "failed"})).json()["queries"]
    assert failed["query"] == "bad"


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"status": "FINE"}, "status"),
        ({"cursor": "made up"}, "cursor"),
    ],
)
async def test_a_wrong_parameter_is_named(
    http: httpx.AsyncClient, parameters: dict[str, str], named: str
) -> None:
    answer = await http.get("/lag", params=parameters)
    assert answer.status_code == 422
    assert answer.json()["type"].endswith("/invalid-parameter")
    assert answer.json()["detail"].startswith(f"{named}: ")


@pytest.mark.parametrize(
    ("method", "path", "allow"), [("GET", "/x", None), ("PUT", "/lag", "GET, HEAD")]
)
async def test_what_the_router_refuses_is_a_problem_document_too(
    http: httpx.AsyncClient, method: str, path: str, allow: str | None
) -> None:
    answer = await http.request(method, path)
    assert answer.status_code == answer.json()["status"] == (405 if allow else 404)
    assert answer.headers.get("allow") == allow
    assert answer.headers["content-type"] == "application/problem+json"


async def test_the_metrics_say_what_is_in_every_queue_and_nothing_of_what_is_not_known(
    http: httpx.AsyncClient, pipeline: Pipeline
) -> None:
    show(pipeline)
    pipeline.counters.refusals.counts["processed-offsets", "malformed"] = 3
    pipeline.enricher.record_times["default"].counts.sampled = 2
    answer = await http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    samples = dict(
        line.rsplit(" ", 1) for line in answer.text.splitlines() if line.startswith("sparklag_")
    )
    refused = 'sparklag_refused_messages_total{reason="malformed",topic="processed-offsets"}'
    assert samples[refused] == "3.0"
    assert samples['sparklag_limit_used_ratio{limit="queries"}'] == "0.0002"
    assert samples["sparklag_queries"] == "1.0"
    assert samples["sparklag_ready"] == "0.0"
    assert samples['sparklag_cluster_up{cluster="default"}'] == "0.0"
    assert samples['sparklag_record_times_sampled_total{cluster="default"}'] == "2.0"
    assert "sparklag_intake_behind" not in samples
    assert set(pipeline.counters.as_dict()) <= {
        name.removeprefix("sparklag_").removesuffix("_total") for name in samples
    }


async def test_answers_are_as_in_openapi(http: httpx.AsyncClient, pipeline: Pipeline) -> None:
    show(pipeline, batch=None)
    api = (await http.get("/openapi.json")).json()
    for path, schema in (("/lag/orders", "LagEvent"), ("/lag", "LagPage")):
        wanted = {"$ref": f"#/components/schemas/{schema}", "components": api["components"]}
        jsonschema.Draft202012Validator(wanted).validate((await http.get(path)).json())
    text = json.dumps(api)
    for reference in {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}:
        assert reference in api["components"]["schemas"]


async def test_the_docs_page_needs_nothing_from_outside(http: httpx.AsyncClient) -> None:
    page = (await http.get("/docs")).text
    assert "//" not in page.replace("http://sparklag", "").split("<script>")[0]
    for line in page.splitlines():
        for attribute in ("src=", "href="):
            if attribute in line:
                path = line.split(attribute)[1].split('"')[1]
                assert (await http.get(path)).status_code == 200, path


async def test_a_superseded_query_is_unlisted(http: httpx.AsyncClient, pipeline: Pipeline) -> None:
    document = show(pipeline, query_id="older", status="STOP", superseded_by="newer")
    assert (await http.get("/lag")).json()["queries"] == []
    listed = (await http.get("/lag?superseded=true")).json()["queries"]
    assert [query["superseded_by"] for query in listed] == ["newer"]
    assert (await http.get("/lag/older")).content == document

"""Who may read what: every route by every state of a token."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from html import unescape
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from msgspec.structs import replace
from starlette.middleware.authentication import AuthenticationMiddleware

from sparklag_offsets.store import open_store
from sparklag_schemas import Settings, StoreSettings, encode
from sparklag_schemas.settings import SCOPES, HttpGrantSettings, HttpTokenSettings
from sparklag_service.access.principals import Principal
from sparklag_service.access.token_file import create_token, revoke_token
from sparklag_service.instance_state import InstanceState
from sparklag_service.pipeline import Pipeline
from sparklag_service.rest.app import create_app
from sparklag_service.rest.authentication import COOKIE, Authentication
from sparklag_service.rest.system import add_page
from sparklag_service.view.view import Entry
from tests.messages import lag_event
from tests.offsets.store.batches import record
from tests.service.pipelines import complete_pipeline_of
from tests.service.rest_client import rest_client
from tests.waiting import eventually

OURS, THEIRS = "team-a-orders", "team-b-bills"
THEIR_ID = "b1111111-2222-3333-4444-555555555555"


def token_settings(path: Path, per_s: float = 100.0) -> Settings:
    return Settings(http_tokens=HttpTokenSettings(file=str(path), requests_per_s=per_s))


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    """Tokens by what they may do; and two that are refused."""
    path = tmp_path / "tokens.json"
    created: dict[str, str] = {}
    for scope in SCOPES:
        created[scope] = create_token(path, scope, [scope], [], [], None)
    created["all"] = create_token(path, "all", SCOPES, [], [], None)
    created["team-a"] = create_token(path, "team-a", SCOPES, ["team-a-.*"], [], None)
    created["east"] = create_token(path, "east", SCOPES, [], ["east"], None)
    created["expired"] = create_token(path, "expired", SCOPES, [], [], 1)
    created["wrong"] = created["all"][:-1] + "!"
    return created


@pytest.fixture
def pipeline(tmp_path: Path, tokens: dict[str, str]) -> Pipeline:
    pipeline = complete_pipeline_of(token_settings(tmp_path / "tokens.json"))
    for query_id, query in (("a1", OURS), (THEIR_ID, THEIRS)):
        event = lag_event(query_id=query_id, query=query, status="FAILED")
        pipeline.view.put(Entry(event, encode(event), 0, 0, 0))
    return pipeline


@pytest.fixture
async def http(pipeline: Pipeline) -> AsyncIterator[httpx.AsyncClient]:
    async with rest_client(pipeline) as client:
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def routes(pipeline: Pipeline) -> list[tuple[str, str]]:
    """Every route of the application, with the other team's query in its path."""
    app = create_app(InstanceState(pipeline))
    # The router takes a path with one line break more.
    found = [("GET", "/nowhere"), ("GET", "/openapi.json"), ("GET", "/metrics%0A")]
    for route in app.routes:
        path = re.sub(r"{.*?}", THEIRS, getattr(route, "path", ""))
        found += [(method, path) for method in getattr(route, "methods", None) or {"GET"}]
    assert ("DELETE", f"/lag/{THEIRS}") in found
    assert any(isinstance(route, APIRoute) for route in app.routes)
    return [(method, path) for method, path in found if not path.startswith("/health/")]


@pytest.mark.parametrize("credential", [None, "wrong", "expired"])
async def test_without_a_valid_token_every_route_is_the_same_401(
    http: httpx.AsyncClient, pipeline: Pipeline, tokens: dict[str, str], credential: str | None
) -> None:
    headers = {} if credential is None else bearer(tokens[credential])
    answers = set()
    for method, path in routes(pipeline):
        answer = await http.request(method, path, headers=headers)
        assert answer.status_code == 401, (method, path)
        assert answer.headers["www-authenticate"] == "Bearer"
        answers.add(answer.content)
    assert len(answers - {b""}) == 1


async def test_a_query_whose_id_is_another_s_name_or_prefix_has_not_its_offsets(
    tokens: dict[str, str], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/offsets.db"
    async with aclosing(open_store(url, create=True)) as store:
        await store.prepare()
        records = [record(0, query_id=THEIR_ID, query=THEIRS), record(0, query_id="a", query=OURS)]
        await store.write(records)
    settings = replace(token_settings(tmp_path / "tokens.json"), store=StoreSettings(url=url))
    pipeline = complete_pipeline_of(settings)
    for query_id in (THEIRS, THEIR_ID[:8], "a"):
        event = lag_event(query_id=query_id, query=f"team-a-{query_id}")
        pipeline.view.put(Entry(event, encode(event), 0, 0, 0))
    async with rest_client(pipeline) as http:
        for query, status in {THEIRS: 404, THEIR_ID[:8]: 404, "a": 200}.items():
            path = f"/offsets/{query}?on_deleted=unchecked"
            answer = await http.get(path, headers=bearer(tokens["team-a"]))
            assert answer.status_code == status, answer.text


async def test_a_scope_opens_its_own_routes_alone(
    http: httpx.AsyncClient, pipeline: Pipeline, tokens: dict[str, str]
) -> None:
    for scope in SCOPES:
        for method, path in routes(pipeline):
            if path.endswith("stream") and scope == "lag":
                continue
            answer = await http.request(method, path, headers=bearer(tokens[scope]))
            needed = "offsets" if path.startswith("/offsets") else "lag"
            needed = "metrics" if path.startswith("/metrics") else needed
            needed = "admin" if method == "DELETE" else needed
            assert (answer.status_code == 403) == (scope != needed), (scope, method, path)
            assert scope == needed or THEIRS not in answer.text


@pytest.mark.parametrize("token", ["team-a", "east"])
async def test_another_teams_query_is_as_if_it_did_not_exist(
    http: httpx.AsyncClient, tokens: dict[str, str], token: str
) -> None:
    headers = bearer(tokens[token])
    for route in ("/lag/{}", "/lag/{}/history", "/lag/{}/explanation", "/lag/{}/stream"):
        for name in (THEIRS, THEIR_ID, THEIR_ID[:6]):
            nothing = "z" * len(name)
            theirs = await http.get(route.format(name), headers=headers)
            unknown = await http.get(route.format(nothing), headers=headers)
            assert theirs.status_code == 404
            assert theirs.text.replace(name, nothing) == unknown.text
            assert theirs.headers == unknown.headers
    for name in (THEIRS, THEIR_ID):
        answer = await http.delete(f"/lag/{name}", headers=headers)
        assert (answer.status_code, answer.json()["title"]) == (404, "Unknown query")


async def test_lists_and_metrics_have_the_queries_of_the_token(
    http: httpx.AsyncClient, tokens: dict[str, str]
) -> None:
    for token, seen in (("team-a", [OURS]), ("east", []), ("all", [OURS, THEIRS])):
        headers = bearer(tokens[token])
        listed = (await http.get("/lag", headers=headers)).json()
        assert [query["query"] for query in listed["queries"]] == seen
        metrics = (await http.get("/metrics", headers=headers)).text
        assert [name for name in (OURS, THEIRS) if f'"{name}"' in metrics] == seen
        # The service's own metrics count every team's queries.
        assert ("sparklag_queries " in metrics) == (token == "all")


async def test_health_alone_is_open_and_says_no_more_than_needed(
    http: httpx.AsyncClient, tokens: dict[str, str]
) -> None:
    assert (await http.get("/health/live")).status_code == 200
    for token in ("wrong", "team-a"):
        answer = await http.get("/health/ready", headers=bearer(tokens[token]))
        assert answer.json().keys() == {"status", "failing"}
        assert all("REST shows it" in hidden for hidden in answer.json()["failing"].values())
    answer = await http.get("/health/ready", headers=bearer(tokens["metrics"]))
    assert answer.json()["counters"]


async def test_a_token_is_revoked_and_another_created_without_a_restart(
    http: httpx.AsyncClient,
    tokens: dict[str, str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "tokens.json"
    assert (await http.get("/lag", headers=bearer(tokens["lag"]))).status_code == 200
    revoke_token(path, "lag")
    new = create_token(path, "lag", ["lag"], [], [], None)

    async def is_accepted() -> bool:
        return (await http.get("/lag", headers=bearer(new))).status_code == 200

    await eventually(is_accepted, "the new token is accepted")
    assert (await http.get("/lag", headers=bearer(tokens["lag"]))).status_code == 401
    path.write_text("{")

    async def is_reported() -> bool:
        assert await is_accepted()
        return "what was read before stays in force" in caplog.text

    await eventually(is_reported, "a broken file is reported, and changes nothing")


async def test_the_file_has_no_token_and_no_log_line_has_one(
    http: httpx.AsyncClient,
    tokens: dict[str, str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "tokens.json"
    with caplog.at_level(logging.DEBUG):
        await http.get("/lag/x%0Ay", headers=bearer(tokens["wrong"]))
        await http.delete("/lag/a1", headers=bearer(tokens["lag"]))
    assert path.stat().st_mode & 0o077 == 0
    text = path.read_text() + caplog.text
    assert not any(token in text for token in tokens.values())
    lines = [record.getMessage() for record in caplog.records if "audit" in record.name]
    assert lines == [
        "GET /lag/x\\ny by nobody from 127.0.0.1: refused, no valid token",
        "DELETE /lag/a1 by lag from 127.0.0.1: refused, no scope admin",
    ]


async def test_more_requests_than_allowed_get_429(tokens: dict[str, str], tmp_path: Path) -> None:
    settings = token_settings(tmp_path / "tokens.json", per_s=0.5)
    async with rest_client(complete_pipeline_of(settings)) as http:
        for token, allowed in (("lag", 5), ("wrong", 1)):
            headers = bearer(tokens[token])
            answers = [await http.get("/lag", headers=headers) for _ in range(allowed + 1)]
            assert [answer.status_code for answer in answers].count(429) == 1
            assert 1 <= int(answers[-1].headers["retry-after"]) <= 20
        # Others are not limited by it.
        assert (await http.get("/lag", headers=bearer(tokens["all"]))).status_code == 200


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "truncated"),
        ('{"tokens": [{"name": "a"}]}', "scopes"),
        ('{"tokens": 3}', "Expected `array`"),
    ],
)
def test_a_tokens_file_that_is_none_is_one_line(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(content)
    with pytest.raises(Exception, match=f"tokens file .*{said}"):
        create_app(InstanceState(complete_pipeline_of(token_settings(path))))


def test_a_stored_token_has_its_hash_alone(tmp_path: Path) -> None:
    token = create_token(tmp_path / "t.json", "a", ["lag"], ["x.*"], ["east"], 2)
    (stored,) = json.loads((tmp_path / "t.json").read_text())["tokens"]
    assert token.startswith("sparklag_")
    assert stored.pop("sha256") != token
    assert stored.pop("created_at") > 0
    limits = {"queries": ["x.*"], "clusters": ["east"], "expires_at": 2}
    assert stored == {"name": "a", "scopes": ["lag"], **limits}


async def test_who_navigates_without_a_valid_token_gets_the_login_form(
    http: httpx.AsyncClient,
) -> None:
    navigation = {"accept": "text/html,*/*;q=0.8"}
    bases = {"/": "./", "/q/a%2Fb": "../", "/docs": "./", "/lag/x/history": "../../"}
    for path, base in bases.items():
        answer = await http.get(path, headers=navigation)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert f'<base href="{base}">' in answer.text
        assert "form-action 'none'" in answer.headers["content-security-policy"]
        answer = await http.post(path, headers=navigation)
        assert answer.json()["title"] == "No valid token"


async def test_a_login_keeps_the_token_in_a_cookie_that_scripts_cannot_read(
    http: httpx.AsyncClient, tokens: dict[str, str]
) -> None:
    for token, status in {"wrong": 401, "expired": 401, "metrics": 403}.items():
        answer = await http.post("/login", headers=bearer(tokens[token]))
        assert (answer.status_code, "set-cookie" in answer.headers) == (status, False)
    for origin, secure in {"http://sparklag": "", "https://lag.example": "; Secure"}.items():
        headers = bearer(tokens["lag"]) | {"origin": origin}
        cookie = (await http.post("/login", headers=headers)).headers["set-cookie"]
        assert cookie == f"{COOKIE}={tokens['lag']}; HttpOnly; SameSite=lax{secure}"


async def test_the_first_cookie_of_the_name_counts(
    http: httpx.AsyncClient, tokens: dict[str, str]
) -> None:
    ours = f"{COOKIE}={tokens['lag']}"
    accepted = (ours, f"a=b; {ours}; {ours}x", f";;=;{ours}")
    refused = (f"{ours}x; {ours}", f"x{ours}", ours + "x" * 8192, ours + "\xe9", COOKIE)
    for cookie in (*accepted, *refused):
        answer = await http.get("/lag", headers={b"cookie": cookie.encode("latin-1")})
        assert answer.status_code == (200 if cookie in accepted else 401), cookie[:100]


@pytest.mark.parametrize(
    ("site", "origin", "is_allowed"),
    [
        ("same-origin", "https://behind.a.proxy", True),
        ("same-site", "http://sparklag", False),
        ("none", "http://sparklag", False),
        ("", "http://sparklag", True),
        ("", "http://sparklag:81", False),
        ("", "http://[", False),
        ("", "null", False),
        ("", "", False),
    ],
)
async def test_the_cookie_changes_nothing_for_a_page_of_another_origin(
    http: httpx.AsyncClient, tokens: dict[str, str], site: str, origin: str, is_allowed: bool
) -> None:
    headers = {"cookie": f"{COOKIE}={tokens['all']}", "authorization": ""}
    headers |= {"origin": origin} if origin else {}
    headers |= {"sec-fetch-site": site} if site else {}
    for method, path in (("DELETE", "/lag/unknown"), ("POST", "/logout"), ("POST", "/login")):
        answer = await http.request(method, path, headers=headers)
        assert (answer.status_code in (204, 404)) == is_allowed, (method, answer.text)


async def test_the_page_names_who_has_logged_in_whatever_the_name(tmp_path: Path) -> None:
    name = "\"><script>alert(1)</script>'&amp;"

    class Anyone:
        async def authenticate(self, credential: str) -> Principal:
            return Principal(name, [HttpGrantSettings(scopes=["lag"])])

    app = FastAPI()
    authentication = Authentication(token_settings(tmp_path / "tokens.json"), [Anyone()])
    app.add_middleware(AuthenticationMiddleware, backend=authentication)
    add_page(app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as http:
        page = (await http.get("/q/x", headers={"cookie": f"{COOKIE}=x"})).text
        (content,) = re.findall('<meta name="sparklag-principal" content="([^"]*)">', page)
        assert unescape(content) == name
        assert name not in page
        assert "sparklag-principal" not in (await http.get("/", headers=bearer("x"))).text


async def test_the_access_log_has_who_sent_what_and_no_secret(
    tokens: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = replace(token_settings(tmp_path / "tokens.json"), http_access_log=True)
    caplog.set_level(logging.INFO, "sparklag_service.rest")
    async with rest_client(complete_pipeline_of(settings)) as http:
        for path, token in (("/lag?x=" + tokens["all"], "lag"), ("/metrics", "lag"), ("/lag", "")):
            await http.get(path, headers=bearer(tokens.get(token, "")))
        await http.get("/health/a%0Ab")
    lines = [r.getMessage() for r in caplog.records if r.name.endswith("request_rules")]
    assert [re.sub(r"in \d+ ms", "in 0 ms", line) for line in lines] == [
        "GET /lag: 200 in 0 ms, lag from 127.0.0.1",
        "GET /metrics: 403 in 0 ms, lag from 127.0.0.1",
        "GET /lag: 401 in 0 ms, nobody from 127.0.0.1",
        "GET /health/a\\nb: 404 in 0 ms, nobody from 127.0.0.1",
    ]
    assert not any(token in caplog.text for token in tokens.values())

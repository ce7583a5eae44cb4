"""Who may read what: every route by every state of a token."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from sparklag_schemas import Settings, SettingsError
from sparklag_schemas.settings import SCOPES, HttpTokenSettings
from sparklag_service.access.token_file import create_token, revoke_token
from sparklag_service.instance_state import InstanceState
from sparklag_service.pipeline import Pipeline
from sparklag_service.rest.app import create_app
from sparklag_service.rest.authentication import COOKIE
from tests.service.live.live_server import live_server
from tests.service.pipelines import OURS, THEIR_ID, THEIRS, complete_pipeline_of, teams_of
from tests.service.rest_client import bearer, rest_client
from tests.waiting import eventually, holds


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    """Tokens by what they may do; and three that are refused."""
    path = tmp_path / "tokens.json"
    created: dict[str, str] = {}
    for scope in SCOPES:
        created[scope] = create_token(path, scope, [scope], [], [], None)
    created["all"] = create_token(path, "all", SCOPES, [], [], None)
    created["team-a"] = create_token(path, "team-a", SCOPES, ["team-a-.*"], [], None)
    created["east"] = create_token(path, "east", SCOPES, [], ["east"], None)
    created["expired"] = create_token(path, "expired", SCOPES, [], [], 1)
    return {**created, "wrong": created["all"][:-1] + "!", "no": ""}


@pytest.fixture
def pipeline(tmp_path: Path, tokens: dict[str, str]) -> Pipeline:
    http_tokens = HttpTokenSettings(file=str(tmp_path / "tokens.json"), requests_per_s=100.0)
    return teams_of(Settings(http_tokens=http_tokens))


@pytest.mark.parametrize("name", ["no", "wrong", "expired", *SCOPES])
async def test_every_route_takes_only_a_valid_token_with_its_scope(
    http: httpx.AsyncClient, pipeline: Pipeline, tokens: dict[str, str], name: str
) -> None:
    # The router takes a path with one line break more.
    requests = {("GET", "/nowhere"), ("GET", "/openapi.json"), ("GET", "/metrics%0A")}
    for route in create_app(InstanceState(pipeline)).routes:
        path = re.sub(r"{.*?}", THEIRS, getattr(route, "path", ""))
        requests |= {(method, path) for method in getattr(route, "methods", None) or {"GET"}}
    assert ("DELETE", f"/lag/{THEIRS}") in requests
    refused = (403, None) if name in SCOPES else (401, "Bearer")
    texts = set()
    for method, path in requests:
        if path.startswith("/health/"):
            continue
        needed = {"/offsets": "offsets", "/metrics": "metrics"}.get(path[:8], "lag")
        needed = "admin" if method == "DELETE" else needed
        if needed == name and path.endswith("stream"):
            continue
        answer = await http.request(method, path, headers=bearer(tokens[name]))
        if needed == name:
            assert answer.status_code not in (401, 403), (method, path)
            continue
        headers = answer.headers
        assert (answer.status_code, headers.get("www-authenticate")) == refused, (method, path)
        assert "set-cookie" not in headers
        texts.add(answer.content)
    # HEAD has none; that of a 403 names the scope.
    assert len(texts - {b""}) == (len(SCOPES) - 1 if name in SCOPES else 1)


@pytest.mark.parametrize("token", ["team-a", "east"])
async def test_another_teams_query_is_as_if_it_did_not_exist(
    http: httpx.AsyncClient, tokens: dict[str, str], token: str
) -> None:
    headers = bearer(tokens[token])
    routes = [("GET", f"/lag/{{}}{rest}") for rest in ("", "/history", "/explanation", "/stream")]
    for method, route in [*routes, ("DELETE", "/lag/{}")]:
        for name in (THEIRS, THEIR_ID, THEIR_ID[:6]):
            nothing = "z" * len(name)
            theirs = await http.request(method, route.format(name), headers=headers)
            unknown = await http.request(method, route.format(nothing), headers=headers)
            assert (theirs.status_code, theirs.json()["title"]) == (404, "Unknown query")
            assert theirs.text.replace(name, nothing) == unknown.text
            assert theirs.headers == unknown.headers


async def test_lists_metrics_and_alike_names_have_the_queries_of_the_token(
    http: httpx.AsyncClient, tokens: dict[str, str]
) -> None:
    for token, seen in (("team-a", [OURS]), ("east", []), ("all", [OURS, THEIRS])):
        headers = bearer(tokens[token])
        listed = (await http.get("/lag", headers=headers)).json()
        assert [query["query"] for query in listed["queries"]] == seen
        metrics = (await http.get("/metrics", headers=headers)).text
        assert [name for name in (OURS, THEIRS) if f'"{name}"' in metrics] == seen
        problem = (await http.get(f"/lag/{THEIRS[1:]}", headers=headers)).json()
        assert problem.get("alike", []) == [name for name in [THEIRS] if name in seen]
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


async def test_a_malformed_tokens_file_is_one_line_and_changes_nothing(
    http: httpx.AsyncClient,
    pipeline: Pipeline,
    tokens: dict[str, str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    unnamed, number = '{"tokens": [{"name": "a"}]}', '{"tokens": 3}'
    for content, cause in {"": "truncated", unnamed: "scopes", number: "Expected `array`"}.items():
        (tmp_path / "tokens.json").write_text(content)
        with pytest.raises(SettingsError, match=f"tokens file .*{cause}"):
            create_app(InstanceState(pipeline))

    async def is_reported() -> bool:
        assert (await http.get("/lag", headers=bearer(tokens["lag"]))).status_code == 200
        return "what was read before stays in force" in caplog.text

    await eventually(is_reported, "the file is read again")


async def test_the_file_has_no_token_and_no_log_line_has_one(
    pipeline: Pipeline, tokens: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "sparklag_service")
    http_tokens = pipeline.settings.http_tokens
    async with (
        live_server(http_tokens=http_tokens, http_access_log=True) as live,
        httpx.AsyncClient(base_url=live.url) as http,
    ):
        await http.get("/lag?x=" + tokens["all"], headers=bearer(tokens["lag"]))
        await http.get("/lag/x%0Ay", headers=bearer(tokens["wrong"]))
        await http.delete("/lag/a1", headers=bearer(tokens["lag"]))
        await http.get("/health/a%0Ab")
    lines = [re.sub(r"in \d+ ms", "in 0 ms", record.getMessage()) for record in caplog.records]
    assert [line for line in lines if "127.0.0.1" in line] == [
        "GET /lag: 200 in 0 ms, lag from 127.0.0.1",
        "GET /lag/x\\ny by nobody from 127.0.0.1: refused, no valid token",
        "GET /lag/x\\ny: 401 in 0 ms, nobody from 127.0.0.1",
        "DELETE /lag/a1 by lag from 127.0.0.1: refused, no scope admin",
        "DELETE /lag/a1: 403 in 0 ms, lag from 127.0.0.1",
        "GET /health/a\\nb: 404 in 0 ms, nobody from 127.0.0.1",
    ]
    file = tmp_path / "tokens.json"
    assert file.stat().st_mode & 0o077 == 0
    # Scanners of secrets find a token by its prefix.
    assert all(tokens[scope].startswith("sparklag_") for scope in SCOPES)
    text = file.read_text() + caplog.text
    assert not any(token in text for token in tokens.values() if token)


async def test_a_token_is_replaced_under_load_without_a_failed_request(tmp_path: Path) -> None:
    file, statuses = tmp_path / "tokens.json", list[int]()
    is_over = asyncio.Event()
    headers = bearer(create_token(file, "old", ["lag"], [], [], None))
    old = dict(headers)
    http_tokens = HttpTokenSettings(file=str(file), requests_per_s=1e6)
    async with (
        live_server(http_tokens=http_tokens) as live,
        httpx.AsyncClient(base_url=live.url) as http,
    ):

        async def load() -> None:
            while not is_over.is_set():
                statuses.append((await http.get("/lag", headers=headers)).status_code)

        async def has_status(token: dict[str, str], status: int) -> bool:
            return (await http.get("/lag", headers=token)).status_code == status

        tasks = [asyncio.create_task(load()) for _ in range(4)]
        new = bearer(create_token(file, "new", ["lag"], [], [], None))
        await eventually(lambda: has_status(new, 200), "the new token is valid")
        headers.update(new)
        done = len(statuses)
        await holds(lambda: len(statuses) > done + 10, "no request has the old token")
        revoke_token(file, "old")
        await eventually(lambda: has_status(old, 401), "the old token is refused")
        is_over.set()
        await asyncio.gather(*tasks)
    assert set(statuses) == {200}


async def test_more_requests_than_allowed_get_429(
    pipeline: Pipeline, tokens: dict[str, str]
) -> None:
    limited = replace(pipeline.settings.http_tokens, requests_per_s=0.5)
    settings = replace(pipeline.settings, http_tokens=limited)
    async with rest_client(complete_pipeline_of(settings)) as http:
        for token, allowed in (("lag", 5), ("wrong", 1)):
            headers = bearer(tokens[token])
            answers = [await http.get("/lag", headers=headers) for _ in range(allowed + 1)]
            assert [answer.status_code for answer in answers].count(429) == 1
            assert 1 <= int(answers[-1].headers["retry-after"]) <= 20
        # Others are not limited by it.
        assert (await http.get("/lag", headers=bearer(tokens["all"]))).status_code == 200


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


async def test_the_cookie_changes_nothing_for_a_page_of_another_origin(
    http: httpx.AsyncClient, tokens: dict[str, str]
) -> None:
    ours = [("same-origin", "https://behind.a.proxy"), ("", "http://sparklag")]
    others = [("same-site", "http://sparklag"), ("none", "http://sparklag")]
    others += [("", origin) for origin in ("http://sparklag:81", "http://[", "null", "")]
    for site, origin in ours + others:
        headers = {"cookie": f"{COOKIE}={tokens['all']}", "authorization": ""}
        headers |= {"origin": origin} if origin else {}
        headers |= {"sec-fetch-site": site} if site else {}
        for method, path in (("DELETE", "/lag/unknown"), ("POST", "/logout"), ("POST", "/login")):
            status = (await http.request(method, path, headers=headers)).status_code
            assert (status in (204, 404)) == ((site, origin) in ours), (method, site, origin)

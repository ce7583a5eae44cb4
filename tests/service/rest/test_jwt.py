"""OIDC tokens: accepted and refused, with a real issuer that rotates, hangs and is away."""

from __future__ import annotations

import asyncio
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any

import httpx
import pytest
from joserfc.jwk import JWKRegistry, RSAKey
from werkzeug import Response
from werkzeug.utils import redirect

from sparklag_schemas import Settings
from sparklag_schemas.settings import HttpGrantSettings, HttpJwtSettings
from sparklag_service.access import jwt
from sparklag_service.pipeline import Pipeline
from sparklag_service.rest.authentication import COOKIE
from tests.issuer import AUDIENCE, Issuer, new_key
from tests.service.pipelines import OURS, THEIR_ID, THEIRS, teams_of
from tests.service.rest_client import bearer, rest_client
from tests.waiting import eventually

EC, OTHER, NEW = new_key("1"), new_key("1"), new_key("2")
RSA, PS = new_key("rsa", "RSA", 2048), new_key("ps", "RSA", 2048, alg="PS256")


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer(keys=[EC, RSA, PS]) as issuer:
        yield issuer


def pipeline_with(issuer: Issuer, **fields: Any) -> Pipeline:
    accepted = HttpJwtSettings(issuer=issuer.url, audiences=["other", AUDIENCE], **fields)
    return teams_of(Settings(http_jwt=accepted))


@pytest.fixture
def pipeline(issuer: Issuer) -> Pipeline:
    return pipeline_with(issuer)


async def get(http: httpx.AsyncClient, token: str, path: str = "/lag") -> httpx.Response:
    return await http.get(path, headers=bearer(token))


async def test_a_token_of_the_issuer_is_accepted(http: httpx.AsyncClient, issuer: Issuer) -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"header": {"typ": None}},
        {"header": {"typ": "JWT"}},
        {"aud": AUDIENCE},
        {"sub": None, "azp": "a-client"},
        {"scope": ["sparklag:lag", "sparklag:metrics"]},
        {"nbf": time.time() + 30, "iat": time.time() + 30},
        {"key": RSA},
        {"key": RSA, "header": {"alg": "PS256"}},
        {"key": RSA, "header": {"alg": "RS512"}},
        # Keys that the token itself brings are ignored.
        {"header": {"jwk": OTHER.as_dict(private=False), "jku": "https://x", "x5u": "https://x"}},
    ]
    for change in changes:
        assert (await get(http, issuer.token(**change))).status_code == 200, change


def hmac_of_public_key(text: bytes) -> bytes:
    assert isinstance(RSA, RSAKey)
    return hmac.digest(RSA.as_pem(private=False), text, "sha256")


REFUSED: dict[str, Callable[[Issuer], str]] = {
    "alg none": lambda i: i.token(header={"alg": "none"}, sign=lambda text: b""),
    "HS256 with the public key": lambda i: i.token(RSA, {"alg": "HS256"}, hmac_of_public_key),
    "ES256 with an RSA key": lambda i: i.token(header={"kid": "rsa"}),
    "RS256 with a key for PS256": lambda i: i.token(PS),
    "another key with the kid": lambda i: i.token(OTHER),
    "unknown kid": lambda i: i.token(header={"kid": "2"}),
    "its own jwk": lambda i: i.token(OTHER, header={"jwk": OTHER.as_dict(private=False)}),
    "no kid": lambda i: i.token(header={"kid": None}),
    "crit": lambda i: i.token(header={"crit": ["exp"], "exp": 1}),
    "crit b64": lambda i: i.token(header={"crit": ["b64"], "b64": False}),
    "typ": lambda i: i.token(header={"typ": "logout+jwt"}),
    "another issuer": lambda i: i.token(iss=i.url + "/"),
    "no issuer": lambda i: i.token(iss=None),
    "another audience": lambda i: i.token(aud="another"),
    "no audience": lambda i: i.token(aud=None),
    "audience as number": lambda i: i.token(aud=[3]),
    "expired": lambda i: i.token(exp=int(time.time()) - 1),
    "no exp": lambda i: i.token(exp=None),
    "exp as text": lambda i: i.token(exp="9999999999"),
    "nbf in 90 s": lambda i: i.token(nbf=time.time() + 90),
    "iat in 90 s": lambda i: i.token(iat=time.time() + 90),
    "no subject": lambda i: i.token(sub=None),
    "subject as number": lambda i: i.token(sub=7),
    "9 KB": lambda i: i.token(pad="x" * 9_000),
    "one character less": lambda i: i.token()[:-1],
    "header as text": lambda i: i.token(header="alg b64", sign=lambda text: b""),
    "header as list": lambda i: i.token(header=["alg"], sign=lambda text: b""),
    "kid as list": lambda i: i.token(header={"kid": []}),
    "alg as object": lambda i: i.token(header={"alg": {}}, sign=lambda text: b""),
    "nothing": lambda i: "..",
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_forged_or_foreign_token_is_refused_like_none(
    http: httpx.AsyncClient, issuer: Issuer, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert (await get(http, issuer.token())).status_code == 200
    token = REFUSED[case](issuer)
    answer = await get(http, token)
    assert answer.status_code == 401
    assert answer.content == (await http.get("/lag")).content
    assert token == ".." or token.split(".")[1] not in caplog.text


async def test_each_value_of_the_claim_grants_its_scopes_for_its_queries_alone(
    issuer: Issuer,
) -> None:
    grants = {
        "team-a": HttpGrantSettings(scopes=["lag", "admin"], queries=["team-a-.*"]),
        "readers": HttpGrantSettings(scopes=["lag"]),
        "east": HttpGrantSettings(scopes=["lag"], clusters=["east"]),
    }
    async with rest_client(pipeline_with(issuer, claim="groups", grants=grants)) as http:
        for nothing in (None, "", [], ["x", 3], {"team-a": 1}, "team-a-not", 7):
            token = issuer.token(groups=nothing)
            assert (await get(http, token)).status_code == 403, nothing
            assert (await get(http, token, "/health/live")).status_code == 200
        visible = {"team-a": [OURS], "team-a readers": [OURS, THEIRS], "east team-a": [OURS]}
        for groups, seen in visible.items():
            listed = (await get(http, issuer.token(groups=groups.split()))).json()["queries"]
            assert [query["query"] for query in listed] == seen
        headers = bearer(issuer.token(groups=["team-a", "readers"]))
        # 503: Kafka is not there.
        for query_id, status in {THEIR_ID: 404, "a1": 503}.items():
            answer = await http.delete(f"/lag/{query_id}", headers=headers)
            assert answer.status_code == status


async def test_while_the_issuer_hangs_keys_are_rotated_without_a_refusal_or_a_flood(
    http: httpx.AsyncClient, issuer: Issuer
) -> None:
    before, resume = issuer.token(), threading.Event()
    assert (await get(http, before)).status_code == 200

    def hang(path: str) -> None:
        resume.wait(20)

    issuer.intercept, issuer.keys[0] = hang, NEW
    waiting = [asyncio.create_task(get(http, issuer.token(jti=str(n)))) for n in range(100)]
    for number in range(50):
        assert (await get(http, issuer.token(EC, jti=str(number)))).status_code == 200
    assert not any(task.done() for task in waiting)
    resume.set()
    assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}
    # What a key that is gone has signed before is not accepted any more.
    assert (await get(http, before)).status_code == 401
    unknown = [issuer.token(header={"kid": f"x{number}"}) for number in range(200)]
    answers = await asyncio.gather(*(get(http, token) for token in unknown))
    assert {answer.status_code for answer in answers} == {401, 429}
    assert sum(request.path == "/keys" for request, _ in issuer.log) == 2


def answers_with(body: str) -> Callable[[str], Response | None]:
    return lambda path: Response(body) if path == "/keys" else None


WEAK = json.dumps({"keys": [new_key("w", "RSA", 2048).as_dict(private=False) | {"n": "x" * 170}]})
SHARED = json.dumps({"keys": [JWKRegistry.generate_key("oct", 256, {"kid": "1"}).as_dict()]})


@pytest.mark.parametrize(
    ("intercept", "cause"),
    [
        (None, "All connection attempts failed"),
        (lambda path: redirect("/"), "status 302"),
        (lambda path: Response("{}", 500), "status 500"),
        (answers_with("x" * 600_000), "more than 524288 bytes"),
        (answers_with("<html>"), "JSON is malformed"),
        (answers_with('{"keys": [3]}'), r"Expected `object`, got `int`"),
        (answers_with('{"keys": [{"kty": ["RSA"]}, {"kty": "EC", "kid": "1"}]}'), "public key"),
        (answers_with(WEAK), "public key"),
        (answers_with(SHARED), "public key"),
        (lambda path: Response('{"issuer": "http://x", "jwks_uri": "https://x"}'), "of issuer"),
        (lambda path: Response('{"issuer": "x", "jwks_uri": "http://x/keys"}'), "matching regex"),
    ],
)
async def test_until_keys_can_be_read_it_is_503_and_one_line_with_the_cause(
    issuer: Issuer,
    intercept: Callable[[str], Response | None] | None,
    cause: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jwt, "RETRY_S", 0.1)
    issuer.intercept = intercept or issuer.intercept
    if intercept is None:
        issuer.stop()
    async with rest_client(pipeline_with(issuer)) as http:
        answers = [await get(http, issuer.token()) for _ in range(3)]
        assert {answer.status_code for answer in answers} == {503}
        assert answers[0].headers["retry-after"] == "10"
        assert (await get(http, issuer.token(), "/health/live")).status_code == 200
        assert (await get(http, "no.jwt")).status_code == 401
        if intercept is None:
            issuer.start()
        issuer.intercept = lambda path: None

        async def is_accepted() -> bool:
            return (await get(http, issuer.token())).status_code == 200

        await eventually(is_accepted, "the keys are read")
    (line,) = [r.getMessage() for r in caplog.records if "cannot be read" in r.getMessage()]
    assert cause in line


async def test_the_page_names_who_has_logged_in_whatever_the_name(
    http: httpx.AsyncClient, issuer: Issuer
) -> None:
    name = "\"><script>alert(1)</script>'&amp;"
    token = issuer.token(sub=name)
    page = (await http.get("/q/x", headers={"cookie": f"{COOKIE}={token}"})).text
    _, _, content = page.partition('<meta name="sparklag-principal" content="')
    assert unescape(content.partition('"')[0]) == name
    assert name not in page
    assert "sparklag-principal" not in (await get(http, token, "/")).text

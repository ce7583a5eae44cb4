"""OIDC tokens: accepted and refused, with a real issuer that rotates, hangs and is away."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
from joserfc.jwk import JWKRegistry, RSAKey
from werkzeug import Response

from sparklag_schemas import Settings, SettingsError, encode
from sparklag_schemas.settings import HttpGrantSettings, HttpJwtSettings, load_settings
from sparklag_service.access import jwt
from sparklag_service.pipeline import Pipeline
from sparklag_service.view.view import Entry
from tests.issuer import AUDIENCE, Issuer, compact, new_key
from tests.messages import lag_event
from tests.service.pipelines import complete_pipeline_of
from tests.service.rest_client import rest_client
from tests.waiting import eventually

RSA, OTHER = new_key("rsa", "RSA", 2048), new_key("1")


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer(new_key("1"), RSA, new_key("ps", "RSA", 2048, alg="PS256")) as issuer:
        yield issuer


def pipeline_with(issuer: Issuer, **fields: Any) -> Pipeline:
    accepted = HttpJwtSettings(issuer=issuer.url, audiences=["other", AUDIENCE], **fields)
    pipeline = complete_pipeline_of(Settings(http_jwt=accepted))
    for query_id, query in (("a1", "team-a-orders"), ("b1", "team-b-bills")):
        event = lag_event(query_id=query_id, query=query, status="FAILED")
        pipeline.view.put(Entry(event, encode(event), 0, 0, 0))
    return pipeline


@pytest.fixture
async def http(issuer: Issuer) -> AsyncIterator[httpx.AsyncClient]:
    async with rest_client(pipeline_with(issuer)) as client:
        yield client


async def get(http: httpx.AsyncClient, token: str, path: str = "/lag") -> httpx.Response:
    return await http.get(path, headers={"authorization": f"Bearer {token}"})


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"header": {"typ": None}},
        {"header": {"typ": "JWT"}},
        {"aud": ["x", AUDIENCE]},
        {"sub": None, "azp": "a-client"},
        {"scope": ["sparklag:lag", "sparklag:metrics"]},
        {"nbf": time.time() + 30, "iat": time.time() + 30},
        {"key": RSA},
        {"key": RSA, "header": {"alg": "PS256"}},
        # Keys that the token itself brings are ignored.
        {"header": {"jwk": OTHER.as_dict(private=False), "jku": "https://x", "x5u": "https://x"}},
    ],
    ids="-".join,
)
async def test_a_token_of_the_issuer_is_accepted(
    http: httpx.AsyncClient, issuer: Issuer, change: dict[str, Any]
) -> None:
    assert (await get(http, issuer.token(**change))).status_code == 200


def hmac_of_public_key(text: bytes) -> bytes:
    assert isinstance(RSA, RSAKey)
    return hmac.digest(RSA.as_pem(private=False), text, "sha256")


def with_header(issuer: Issuer, header: Any) -> str:
    _, payload, signature = issuer.token().split(".")
    return f"{compact(header, {}, lambda text: b'').split('.')[0]}.{payload}.{signature}"


REFUSED: dict[str, Callable[[Issuer], str]] = {
    "alg none": lambda i: with_header(i, {"alg": "none", "kid": "1"}).rpartition(".")[0] + ".",
    "HS256 with the public key": lambda i: compact(
        {"alg": "HS256", "kid": "rsa"},
        {"iss": i.url, "aud": AUDIENCE, "sub": "alice", "exp": time.time() + 60},
        hmac_of_public_key,
    ),
    "ES256 with an RSA key": lambda i: i.token(header={"kid": "rsa"}),
    "RS256 with a key for PS256": lambda i: i.token(i.keys[2]),
    "RS512, which is not accepted": lambda i: i.token(RSA, header={"alg": "RS512"}),
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
    "header as text": lambda i: with_header(i, "alg b64"),
    "header as list": lambda i: with_header(i, ["alg"]),
    "kid as list": lambda i: with_header(i, {"alg": "ES256", "kid": []}),
    "alg as object": lambda i: with_header(i, {"alg": {}, "kid": "1"}),
    "nothing": lambda i: "..",
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_forged_or_foreign_token_is_refused_like_none(
    http: httpx.AsyncClient, issuer: Issuer, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await get(http, REFUSED[case](issuer))
    assert answer.status_code == 401
    assert answer.content == (await http.get("/lag")).content
    assert issuer.token().split(".")[2] not in caplog.text


@pytest.mark.parametrize("value", [None, "", [], ["x", 3], {"team-a": 1}, "admins-not", 7])
async def test_a_claim_without_a_granted_value_opens_nothing(issuer: Issuer, value: Any) -> None:
    grants = {"admins": HttpGrantSettings(scopes=["lag", "admin"])}
    async with rest_client(pipeline_with(issuer, claim="groups", grants=grants)) as http:
        assert (await get(http, issuer.token(groups=value))).status_code == 403
        assert (await get(http, issuer.token(groups=value), "/health/live")).status_code == 200


async def test_each_group_grants_its_scopes_for_its_queries_alone(issuer: Issuer) -> None:
    grants = {
        "team-a": HttpGrantSettings(scopes=["lag", "admin"], queries=["team-a-.*"]),
        "readers": HttpGrantSettings(scopes=["lag"]),
        "east": HttpGrantSettings(scopes=["lag"], clusters=["east"]),
    }
    async with rest_client(pipeline_with(issuer, claim="groups", grants=grants)) as http:
        for groups, seen in ((["team-a"], 1), (["team-a", "readers"], 2), (["east", "team-a"], 1)):
            listed = (await get(http, issuer.token(groups=groups))).json()["queries"]
            assert len(listed) == seen
        headers = {"authorization": f"Bearer {issuer.token(groups=['team-a', 'readers'])}"}
        statuses = [
            (await http.delete(f"/lag/{query_id}", headers=headers)).status_code
            for query_id in ("b1", "a1")
        ]
        # 503: Kafka is not there.
        assert statuses == [404, 503]


async def test_keys_are_rotated_under_load_without_a_refusal(
    http: httpx.AsyncClient, issuer: Issuer
) -> None:
    old, new = issuer.keys[0], new_key("2")
    statuses: list[int] = []

    async def load() -> None:
        while len(statuses) < 300:
            await asyncio.sleep(0)
            key = new if len(statuses) > 100 else old
            statuses.append(
                (await get(http, issuer.token(key, jti=str(len(statuses))))).status_code
            )
            if len(statuses) == 100:
                issuer.keys[0] = new

    await asyncio.gather(*(load() for _ in range(5)))
    assert set(statuses) == {200}
    assert issuer.requests_of_keys() == 2
    # The key that is gone is not accepted any more, nor is what it has signed before.
    assert (await get(http, issuer.token(old))).status_code == 401


async def test_a_flood_of_unknown_keys_is_one_request_to_the_issuer(
    http: httpx.AsyncClient, issuer: Issuer
) -> None:
    tokens = [issuer.token(header={"kid": f"x{number}"}) for number in range(200)]
    answers = await asyncio.gather(*(get(http, token) for token in tokens))
    assert {answer.status_code for answer in answers} == {401, 429}
    assert issuer.requests_of_keys() == 2


async def test_an_issuer_that_hangs_delays_no_token_with_a_key_that_was_read(
    http: httpx.AsyncClient, issuer: Issuer
) -> None:
    assert (await get(http, issuer.token())).status_code == 200

    def hang(path: str) -> None:
        issuer.resume.wait(20)

    issuer.intercept = hang
    waiting = asyncio.create_task(get(http, issuer.token(header={"kid": "x"})))
    for number in range(50):
        assert (await get(http, issuer.token(jti=str(number)))).status_code == 200
    assert not waiting.done()
    issuer.resume.set()
    assert (await waiting).status_code == 401


def redirect(path: str) -> Response:
    return Response(status=302, headers={"location": "/"})


def answers_with(body: str) -> Callable[[str], Response | None]:
    return lambda path: Response(body) if path == "/keys" else None


WEAK = json.dumps({"keys": [new_key("w", "RSA", 2048).as_dict(private=False) | {"n": "x" * 170}]})
SHARED = json.dumps({"keys": [JWKRegistry.generate_key("oct", 256, {"kid": "1"}).as_dict()]})


@pytest.mark.parametrize(
    ("intercept", "cause"),
    [
        (redirect, "status 302"),
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
async def test_keys_that_cannot_be_read_are_503_and_one_line_with_the_cause(
    issuer: Issuer,
    intercept: Callable[[str], Response | None],
    cause: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    issuer.intercept = intercept
    async with rest_client(pipeline_with(issuer)) as http:
        answers = [await get(http, issuer.token()) for _ in range(3)]
        assert {answer.status_code for answer in answers} == {503}
        assert answers[0].headers["retry-after"] == "10"
        assert (await get(http, issuer.token(), "/health/live")).status_code == 200
        assert (await get(http, "no.jwt")).status_code == 401
    (line,) = [r.getMessage() for r in caplog.records if "cannot be read" in r.getMessage()]
    assert cause in line


async def test_a_service_starts_before_its_issuer_and_outlives_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jwt, "RETRY_S", 0.1)
    with Issuer() as before:
        port = before.port
    later = Issuer(port=port)
    async with rest_client(pipeline_with(later)) as http:
        assert (await get(http, later.token())).status_code == 503
        with later:

            async def is_accepted() -> bool:
                return (await get(http, later.token())).status_code == 200

            await eventually(is_accepted, "the keys are read")
        assert (await get(http, later.token(jti="new"))).status_code == 200


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('issuer = "https://x"', "needs http_jwt.audiences"),
        ('issuer = "http://10.0.0.1/"\naudiences = ["a"]', "http_jwt.issuer"),
        ('issuer = "http://localhost:1@x/"\naudiences = ["a"]', "http_jwt.issuer"),
        ('issuer = "https://x"\naudiences = ["a"]\nalgorithms = ["HS256"]', "algorithms"),
        ('issuer = "https://x"\naudiences = ["a"]\n[http_jwt.grants.g]\nscopes = []', "length"),
        ("[http_jwt.grants.g]\nscopes = ['lag']\nqueries = ['(']", "not a regular expression"),
    ],
)
def test_settings_that_would_let_in_others_are_one_line(
    tmp_path: Any, toml: str, said: str
) -> None:
    (tmp_path / "sparklag.toml").write_text(f"[http_jwt]\n{toml}\n")
    with pytest.raises(SettingsError, match=said):
        load_settings(config=tmp_path / "sparklag.toml", environ={})


def test_an_issuer_contradicts_http_auth_none() -> None:
    accepted = HttpJwtSettings(issuer="https://x/", audiences=["a"])
    assert Settings(http_jwt=accepted).needs_token
    with pytest.raises(ValueError, match="leave out one"):
        Settings(http_jwt=accepted, http_auth="none")

"""The commands and a driver against a service with TLS and tokens: what they send, and to whom."""

from __future__ import annotations

import asyncio
import subprocess
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from werkzeug import Response

from sparklag_listener.errors import LagUnavailable
from sparklag_listener.lag.rest_source import RestSource
from sparklag_schemas import SettingsError, encode
from sparklag_schemas.service_access import ServiceAccess
from sparklag_schemas.settings import (
    HttpTlsSettings,
    HttpTokenSettings,
    ServiceClientSettings,
)
from sparklag_service.access.token_file import create_token, revoke_token
from sparklag_service.cli.check import check_service
from tests.certificates import Certificates, make_certificates
from tests.http_server import HttpServer
from tests.messages import QUERY_ID, lag_event
from tests.service.cli.test_cli import refused, sparklag
from tests.service.live.live_server import live_server
from tests.waiting import DEADLINE_S, eventually

SCOPES = ["lag", "metrics", "offsets", "admin"]
TOKEN = "sparklag_not-to-be-seen"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def secured(made: Certificates, tokens: Path, **tls: str) -> dict[str, Any]:
    """The settings of a service."""
    return {
        "http_tls": HttpTlsSettings(certfile=str(made.server), **tls),
        "http_tokens": HttpTokenSettings(file=str(tokens)),
    }


def client(made: Certificates, **variables: str) -> dict[str, str]:
    """Variables of a command that trusts the service."""
    given = {"SSL_CAFILE": str(made.ca), **variables}
    return {f"SPARKLAG_SERVICE_CLIENT__{name}": value for name, value in given.items()}


async def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(lambda: sparklag(*arguments, settings=None, **variables))


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("lag orders", "lag"),
        ("queries", "orders\t"),
        ("tail -n 1", "orders"),
        (f"forget {QUERY_ID}", "is OK: its driver, checkpoint or group speaks"),
    ],
)
async def test_a_command_shows_its_token_and_trusts_the_authority_of_the_settings(
    made: Certificates, tokens: Path, tmp_path: Path, command: str, text: str
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(create_token(tokens, "cli", SCOPES, [], [], None) + "\n")
    settings = tmp_path / "client.toml"
    section = f'token_file = "{token_file}"\nssl_cafile = "{made.ca}"\n'
    settings.write_text(f"[service_client]\n{section}")
    async with live_server(**secured(made, tokens)) as live:
        live.show(lag_event(query="orders"))
        variables = client(made, TOKEN=token_file.read_text().strip())
        config = {"SPARKLAG_CONFIG": str(settings)}
        for option, given in (("", variables), ("", config), (f" --config {settings}", {})):
            ended = await run(*f"{command} --url {live.url}{option}".split(), **given)
            assert text in ended.stdout + ended.stderr


async def test_a_refusal_is_one_line_with_what_to_set(made: Certificates, tokens: Path) -> None:
    metrics = create_token(tokens, "metrics", ["metrics"], [], [], None)
    async with live_server(**secured(made, tokens, client_cafile=str(made.ca))) as live:
        identity = {
            "SSL_CERTFILE": made.client["ssl_certfile"],
            "SSL_KEYFILE": str(made.client_key),
        }
        url, port = live.url, live.port
        cases: list[tuple[str, dict[str, str], str]] = [
            (url, client(made, **identity), "set service_client.token or"),
            (url, client(made, **identity, TOKEN=TOKEN), "correct service_client.token or"),
            (url, client(made, **identity, TOKEN=metrics), "this needs a token with scope lag"),
            (url, client(made, TOKEN=TOKEN), "want another service_client.ssl_certfile"),
            (url, client(made, SSL_CAFILE=str(made.other_ca)), "service_client.ssl_cafile names"),
            (f"https://localhost:{port}", client(made, **identity), "'localhost'"),
            (f"http://127.0.0.1:{port}", client(made, TOKEN=TOKEN), "does it want https://"),
            ("http://sparklag.example", client(made, TOKEN=TOKEN), "use https, or set service_cl"),
            (url, client(made, TOKEN_FILE="/nowhere"), "token_file = '/nowhere' cannot be read"),
            (url, client(made, TOKEN=f"{TOKEN} x"), "service_client.token is no token"),
            (url, client(made, SSL_CERTFILE="/nowhere"), "service_client, TLS files"),
        ]
        for address, variables, text in cases:
            for _ in range(3):  # a client whose certificate is refused may see only a reset
                line = refused(await run("lag", "orders", "--url", address, **variables))
                assert text in line, (address, variables)
                assert not any(secret in line for secret in (TOKEN, metrics))


async def test_a_plain_service_or_an_expired_certificate_is_named(made: Certificates) -> None:
    with HttpServer(lambda _: Response("")) as plain:
        address = plain.url.replace("http:", "https:")
        line = refused(await run("lag", "x", "--url", address, **client(made)))
        assert "does not answer by TLS" in line
    ended = datetime.now(timezone.utc) - timedelta(days=1)
    with HttpServer(lambda _: Response(""), tls=made.other_server_context(not_after=ended)) as old:
        line = refused(await run("lag", "x", "--url", old.url, **client(made)))
        assert "certificate has expired" in line
        (result,) = await check_service(
            ServiceAccess(old.url, ServiceClientSettings(ssl_cafile=str(made.ca)))
        )
        assert "certificate has expired" in result.text


async def test_a_token_goes_to_no_redirect_and_no_proxy(made: Certificates) -> None:
    with HttpServer(lambda _: Response(encode(lag_event()))) as other:
        with HttpServer(lambda _: Response("", 302, {"location": other.url})) as service:
            for variables in ({}, {"HTTP_PROXY": other.url, "http_proxy": other.url}):
                given = {**client(made, TOKEN=TOKEN), **variables}
                refused(await run("lag", "x", "--url", service.url, **given))
        sent = [request.headers.get("authorization") for request, _ in service.log]
        assert sent == [f"Bearer {TOKEN}"] * 2
    assert other.log == []


async def test_a_driver_shows_its_token_and_reads_its_file_again(
    made: Certificates, tokens: Path, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(create_token(tokens, "old", ["lag"], [], [], None))
    settings = ServiceClientSettings(token_file=str(file), ssl_cafile=str(made.ca))
    async with live_server(**secured(made, tokens)) as live:
        live.show(lag_event(query="orders"))
        source = RestSource(ServiceAccess(live.url, settings))

        async def outcome() -> str:
            try:
                return (await asyncio.to_thread(source.find, "orders", DEADLINE_S)).status
            except LagUnavailable as error:
                return str(error)

        assert await outcome() == "OK"
        revoke_token(tokens, "old")

        async def is_refused() -> bool:
            return "correct service_client.token or service_client.token_file" in await outcome()

        await eventually(is_refused, "the token was revoked")
        file.write_text(create_token(tokens, "new", ["lag"], [], [], None))

        async def is_served() -> bool:
            return await outcome() == "OK"

        await eventually(is_served, "the new token is sent")
        untrusting = RestSource(ServiceAccess(live.url, ServiceClientSettings()))
        with pytest.raises(LagUnavailable, match=r"service_client\.ssl_cafile names"):
            await asyncio.to_thread(untrusting.find, "orders", DEADLINE_S)
    plain = RestSource(ServiceAccess("http://sparklag.example", settings))
    with pytest.raises(SettingsError, match="use https"):
        await asyncio.to_thread(plain.find, "orders", DEADLINE_S)

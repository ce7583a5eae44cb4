"""The commands and a driver against a service with TLS and tokens: what they send, and to whom."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
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
    SCOPES,
    HttpTlsSettings,
    HttpTokenSettings,
    ServiceClientSettings,
)
from sparklag_service.access.token_file import create_token, revoke_token
from sparklag_service.cli.check import check_service
from tests.certificates import Certificates
from tests.http_server import HttpServer
from tests.messages import QUERY_ID, lag_event
from tests.service.cli.test_cli import refused, sparklag
from tests.service.live.live_server import LiveServer, live_server
from tests.waiting import DEADLINE_S, eventually

TOKEN = "sparklag_not-to-be-seen"


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    scopes = {"all": SCOPES, "metrics": ["metrics"]}
    path = tmp_path / "tokens.json"
    return {name: create_token(path, name, each, [], [], None) for name, each in scopes.items()}


@pytest.fixture
async def live(
    certificates: Certificates, tokens: dict[str, str], tmp_path: Path
) -> AsyncIterator[LiveServer]:
    """It wants a token, and a certificate of the client."""
    certfile, ca = str(certificates.server), str(certificates.ca)
    async with live_server(
        http_tls=HttpTlsSettings(certfile=certfile, client_cafile=ca),
        http_tokens=HttpTokenSettings(file=str(tmp_path / "tokens.json")),
    ) as live:
        live.show(lag_event(query="orders"))
        yield live


def client(**settings: Any) -> dict[str, Any]:
    """The variables of these settings."""
    return {f"SPARKLAG_SERVICE_CLIENT__{name.upper()}": text for name, text in settings.items()}


async def run(command: str, url: str, **variables: Any) -> subprocess.CompletedProcess[str]:
    arguments = [*command.split(), "--url", url]
    return await asyncio.to_thread(lambda: sparklag(*arguments, **variables))


async def test_a_command_shows_its_token_and_trusts_the_authority_of_the_settings(
    live: LiveServer, certificates: Certificates, tokens: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(f"{tokens['all']}\n")
    by_file = {**certificates.client, "token_file": tmp_path / "token"}
    lines = [f"{name} = '{value}'" for name, value in by_file.items()]
    settings = tmp_path / "client.toml"
    settings.write_text("\n".join(["[service_client]", *lines]))
    variables = client(**certificates.client, token=tokens["all"])
    for command, text in {
        "lag orders": "lag",
        "queries": "orders\t",
        "tail -n 1": "orders",
        f"forget {QUERY_ID}": "is OK: its driver, checkpoint or group speaks",
    }.items():
        for option, given in (
            ("", variables),
            ("", {"SPARKLAG_CONFIG": str(settings)}),
            (f" --config {settings}", {}),
        ):
            ended = await run(command + option, live.url, **given)
            assert text in ended.stdout + ended.stderr, (command, option)


async def test_a_refusal_is_one_line_with_what_to_set(
    live: LiveServer, certificates: Certificates, tokens: dict[str, str]
) -> None:
    ended = datetime.now(timezone.utc) - timedelta(days=1)
    expired = certificates.other_server_context(not_after=ended)
    url, ca = live.url, {"ssl_cafile": str(certificates.ca)}
    both: dict[str, Any] = certificates.client
    with (
        HttpServer(lambda _: Response("")) as plain,
        HttpServer(lambda _: Response(""), tls=expired) as old,
    ):
        cases: list[tuple[str, dict[str, Any], str]] = [
            (url, both, "set service_client.token or"),
            (url, both | {"token": TOKEN}, "correct service_client.token or"),
            (url, both | {"token": tokens["metrics"]}, "this needs a token with scope lag"),
            (url, ca | {"token": TOKEN}, "want another service_client.ssl_certfile"),
            (url, {"ssl_cafile": str(certificates.other_ca)}, "service_client.ssl_cafile names"),
            (f"https://localhost:{live.port}", both, "'localhost'"),
            (f"http://127.0.0.1:{live.port}", ca | {"token": TOKEN}, "does it want https://"),
            ("http://sparklag.example", ca | {"token": TOKEN}, "use https, or set service_cl"),
            (url, ca | {"token_file": "/none"}, "token_file = '/none' cannot be read"),
            (url, ca | {"token": f"{TOKEN} x"}, "service_client.token is no token"),
            (url, ca | {"ssl_certfile": "/none"}, "service_client, TLS files"),
            (plain.url.replace("http:", "https:"), ca, "does not answer by TLS"),
            (old.url, ca, "certificate has expired"),
        ]
        for address, settings, text in cases:
            for _ in range(3):  # a client whose certificate is refused may see only a reset
                line = refused(await run("lag orders", address, **client(**settings)))
                assert text in line, (address, settings)
                assert not any(secret in line for secret in (TOKEN, *tokens.values()))
        by_ca = ServiceClientSettings(ssl_cafile=str(certificates.ca))
        (result,) = await check_service(ServiceAccess(old.url, by_ca))
        assert "certificate has expired" in result.text


async def test_a_token_goes_to_no_redirect_and_no_proxy() -> None:
    with HttpServer(lambda _: Response(encode(lag_event()))) as other:
        with HttpServer(lambda _: Response("", 302, {"location": other.url})) as service:
            for variables in ({}, {"HTTP_PROXY": other.url, "http_proxy": other.url}):
                refused(await run("lag x", service.url, **client(token=TOKEN), **variables))
        sent = [request.headers.get("authorization") for request, _ in service.log]
        assert sent == [f"Bearer {TOKEN}"] * 2
    assert other.log == []


async def test_a_driver_shows_its_token_and_reads_its_file_again(
    live: LiveServer, certificates: Certificates, tokens: dict[str, str], tmp_path: Path
) -> None:
    file, path = tmp_path / "token", tmp_path / "tokens.json"
    file.write_text(tokens["all"])
    by_file: dict[str, Any] = {**certificates.client, "token_file": str(file)}
    settings = ServiceClientSettings(**by_file)
    ours = RestSource(ServiceAccess(live.url, settings))

    async def shows(text: str, source: RestSource = ours) -> bool:
        try:
            return (await asyncio.to_thread(source.find, "orders", DEADLINE_S)).status == text
        except (LagUnavailable, SettingsError) as error:
            return text in str(error)

    assert await shows("OK")
    revoke_token(path, "all")
    refusal = "correct service_client.token or service_client.token_file"
    await eventually(lambda: shows(refusal), refusal)
    file.write_text(create_token(path, "new", ["lag"], [], [], None))
    await eventually(lambda: shows("OK"), "the new token is accepted")
    untrusting = RestSource(ServiceAccess(live.url, ServiceClientSettings()))
    assert await shows("service_client.ssl_cafile names", untrusting)
    assert await shows("use https", RestSource(ServiceAccess("http://sparklag.example", settings)))

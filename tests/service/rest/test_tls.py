"""TLS of the REST interface on real sockets: certificates, their rotation, and the limits."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import ssl
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme

from sparklag_jobs.broker.child_process import free_port
from sparklag_schemas import Settings, SettingsError
from sparklag_schemas.settings import HttpTlsSettings, LimitSettings
from sparklag_service.rest.tls import server_contexts
from sparklag_service.server import serve
from tests.certificates import Certificates, make_certificates
from tests.service.live.live_server import ended, live_server
from tests.waiting import eventually, holds

(HEALTH,) = re.findall(r"HEALTHCHECK .*\n +CMD (.*)", Path("Dockerfile").read_text())


async def test_only_a_client_with_a_certificate_is_served_but_by_the_monitoring_port(
    certificates: Certificates,
) -> None:
    tls, port = certificates.http_tls(certificates.ca), free_port()
    async with live_server(http_tls=tls, http_monitoring_port=port) as live:
        known, unknown = (certificates.client_context(with_certificate=w) for w in (True, False))
        for path in ("/lag", "/metrics", "/health/live"):
            assert await live.status(path, known) == 200
            assert await live.status(path, unknown) is None
        for path, status in {"/health/live": 200, "/metrics": 200, "/lag": 404, "/": 404}.items():
            assert await live.status(path, unknown, port) == status


async def test_the_image_asks_for_its_health_where_the_service_answers(
    certificates: Certificates,
) -> None:
    """503: without Kafka it is not ready."""
    tls, port = certificates.http_tls(certificates.ca), free_port()
    by_tls = {"SPARKLAG_HTTP_TLS__CERTFILE": "tls.crt"}
    by_port = by_tls | {"SPARKLAG_HTTP_MONITORING_PORT": str(port)}
    fields: dict[str, Any]
    for fields, environ in (
        ({}, {}),
        ({"http_tls": certificates.http_tls()}, by_tls),
        ({"http_tls": tls, "http_monitoring_port": port}, by_port),
    ):
        async with live_server(**fields) as live:
            checking = await asyncio.create_subprocess_exec(
                *(sys.executable, *json.loads(HEALTH)[1:]),
                env=environ | {"SPARKLAG_HTTP_PORT": str(live.port)},
                stderr=asyncio.subprocess.PIPE,
            )
            _, errors = await checking.communicate()
            assert b"HTTP Error 503" in errors, fields


async def test_a_rotation_under_load_fails_no_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sparklag_schemas.runtime.reloading")
    made, other = make_certificates(tmp_path), trustme.CA()
    clients_ca = tmp_path / "clients.crt"
    clients_ca.write_bytes(made.ca.read_bytes())
    old, both = made.client_context(), made.client_context()
    other.configure_trust(both)
    served: list[int | None] = []
    is_over = asyncio.Event()
    async with live_server(http_tls=made.http_tls(clients_ca)) as live:

        async def load() -> None:
            while not is_over.is_set():
                served.append(await live.status(tls=both))

        tasks = [asyncio.create_task(load()) for _ in range(4)]
        new = other.issue_cert("127.0.0.1")
        # Half of the new files: the old ones count.
        new.cert_chain_pems[0].write_to_path(made.server)
        await holds(lambda: "what was read before stays in force" in caplog.text, "refused")
        assert await live.status(tls=old) == 200
        new.private_key_pem.write_to_path(made.server, append=True)
        await holds(lambda: "read again" in caplog.text, "it has the new certificate")
        assert await live.status(tls=old) is None
        done = len(served)
        await holds(lambda: len(served) > done + 20, "the load goes on")
        is_over.set()
        await asyncio.gather(*tasks)
        assert set(served) == {200}
        clients_ca.write_bytes(made.other_ca.read_bytes())

        async def is_refused() -> bool:
            return await live.status(tls=both) is None

        await eventually(is_refused, "the authority of clients was replaced")


@pytest.mark.parametrize(
    ("setting", "content", "cause"),
    [
        ("certfile", None, "No such file"),
        ("keyfile", None, "No such file"),
        ("client_cafile", None, "No such file"),
        ("certfile", b"x", "it has no CERTIFICATE in PEM"),
        ("keyfile", b"x", "it has no PRIVATE KEY in PEM"),
        ("client_cafile", b"-----BEGIN CERTIFICATE-----\nx", "OpenSSL cannot read it"),
        ("keyfile", b"-----BEGIN PRIVATE KEY-----\nx", "OpenSSL cannot read it"),
        ("keyfile", b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nx", "http_tls.key_password is"),
        ("keyfile", b"ca.key", "its key is not that of the certificate"),
    ],
)
def test_a_wrong_file_is_one_line_with_setting_file_and_cause(
    setting: str, content: bytes | None, cause: str, certificates: Certificates, tmp_path: Path
) -> None:
    made, file = certificates, tmp_path / "wrong"
    if content is not None:
        file.write_bytes(made.ca_key.read_bytes() if content == b"ca.key" else content)
    files = {"certfile": str(made.server), "keyfile": str(made.server), setting: str(file)}
    contexts = server_contexts(made.http_tls(made.ca)).value
    assert {context.minimum_version for context in contexts} == {ssl.TLSVersion.TLSv1_2}
    with pytest.raises(SettingsError, match=cause) as raised:
        server_contexts(HttpTlsSettings(**files, key_password="a secret"))
    assert str(raised.value).startswith(f"setting http_tls.{setting} = '{file}': ")
    assert "a secret" not in str(raised.value)


async def test_a_handshake_counts_and_has_a_deadline(certificates: Certificates) -> None:
    limits, tls = LimitSettings(connections_per_address=1, request_s=0.5), certificates.http_tls()
    async with live_server(limits=limits, http_tls=tls) as live:
        accepted = live.http.server_state.connections
        handshake = await live.connect()
        await holds(lambda: len(accepted) == 1, "it is accepted")
        assert await live.status(tls=certificates.client_context()) is None
        assert live.pipeline.counters.connections_refused == 1
        assert await ended(handshake) == b""
        for _ in range(3):
            await holds(lambda: not accepted, "nothing is left of it")
            assert await live.status(tls=certificates.client_context()) == 200


async def test_idle_connections_and_handshakes_do_not_delay_the_end(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncExitStack() as clients:
        async with live_server(http_tls=certificates.http_tls()) as live:
            await live.connect()
            idle = await clients.enter_async_context(
                live.not_reading("/lag", 4_096, tls=certificates.client_context())
            )
            assert await asyncio.to_thread(idle.recv, 12) == b"HTTP/1.1 200"
            await holds(lambda: len(live.http.server_state.connections) == 3, "all are accepted")
            began_s = time.monotonic()
        assert time.monotonic() - began_s < 1.5
    assert "Cancel" not in caplog.text


async def test_the_service_does_not_start_open_to_other_machines() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "a.example.org", "127.example.org"):
        settings = Settings(bootstrap_servers="localhost:1", http_host=host)
        with pytest.raises(SettingsError) as raised:
            await serve(settings)
        for way_out in ("sparklag tokens create", "http_jwt", "http_auth = 'none'"):
            assert way_out in str(raised.value)
    for host in ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"):
        Settings(http_host=host).check_http()
    Settings(http_host="0.0.0.0", http_auth="none").check_http()

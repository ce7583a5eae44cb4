"""TLS of the REST interface on real sockets: certificates, their rotation, and the limits."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import trustme

from sparklag_jobs.broker.child_process import free_port
from sparklag_schemas import Settings, SettingsError
from sparklag_schemas.settings import HttpTlsSettings, LimitSettings
from sparklag_service.rest.tls import server_contexts
from sparklag_service.server import serve
from tests.certificates import Certificates, make_certificates
from tests.messages import lag_event
from tests.service.live.live_server import LiveServer, live_server
from tests.waiting import DEADLINE_S, eventually, holds

# httpx leaves sockets to the garbage collector where a handshake fails.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
)

REQUEST = b"GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n"
CLOSE = b"Connection: close\r\n"


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path)


def tls_of(made: Certificates, client_cafile: Path | None = None) -> HttpTlsSettings:
    ca = None if client_cafile is None else str(client_cafile)
    return HttpTlsSettings(certfile=str(made.server), client_cafile=ca)


def client_context(made: Certificates, *, with_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(made.ca))
    if with_certificate:
        context.load_cert_chain(made.client_certificate, made.client_key)
    return context


async def get(context: ssl.SSLContext, port: int, path: str) -> httpx.Response:
    """By a connection of its own."""
    async with httpx.AsyncClient(verify=context, timeout=DEADLINE_S) as client:
        return await client.get(f"https://127.0.0.1:{port}{path}")


def connect(context: ssl.SSLContext, port: int, sends: bytes = b"") -> ssl.SSLSocket:
    """A client whose kernel takes little, and which reads nothing by itself."""
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    plain.settimeout(DEADLINE_S)
    plain.connect(("127.0.0.1", port))
    try:
        connection = context.wrap_socket(plain, server_hostname="127.0.0.1")
    except OSError:
        plain.close()
        raise
    connection.sendall(sends)
    return connection


def read_all(connection: ssl.SSLSocket) -> bytes:
    got = b""
    with connection:
        while part := connection.recv(65_536):
            got += part
    return got


async def test_only_a_client_with_a_certificate_is_served_but_by_the_monitoring_port(
    made: Certificates,
) -> None:
    monitoring = free_port()
    async with live_server(http_tls=tls_of(made, made.ca), http_monitoring_port=monitoring) as live:
        known, unknown = client_context(made, with_certificate=True), client_context(made)
        for path in ("/lag", "/metrics", "/health/live"):
            assert (await get(known, live.port, path)).status_code == 200
            with pytest.raises(httpx.TransportError):
                await get(unknown, live.port, path)
        for path, status in {"/health/live": 200, "/metrics": 200, "/lag": 404, "/": 404}.items():
            assert (await get(unknown, monitoring, path)).status_code == status


async def test_a_rotation_under_load_fails_no_request(
    made: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sparklag_schemas.runtime.reloading")
    clients_ca = made.folder / "clients.crt"
    clients_ca.write_bytes(made.ca.read_bytes())
    served: list[int] = []
    async with live_server(http_tls=tls_of(made, clients_ca)) as live:
        context = client_context(made, with_certificate=True)
        other = trustme.CA()
        other.cert_pem.write_to_path(made.ca, append=True)
        both = client_context(made, with_certificate=True)

        is_over = asyncio.Event()

        async def load() -> None:
            while not is_over.is_set():
                served.append((await get(both, live.port, "/lag")).status_code)

        async def serial(of: ssl.SSLContext) -> str:
            def read() -> str:
                with connect(of, live.port) as connection:
                    return str((connection.getpeercert() or {})["serialNumber"])

            return await asyncio.to_thread(read)

        tasks = [asyncio.create_task(load()) for _ in range(4)]
        before, new = await serial(context), other.issue_cert("127.0.0.1")
        certificate = new.cert_chain_pems[0].bytes()
        # Half of the new files: the old ones count.
        made.server.write_bytes(certificate)
        await holds(lambda: "what was read before stays in force" in caplog.text, "refused")
        assert await serial(context) == before
        made.server.write_bytes(certificate + new.private_key_pem.bytes())
        await holds(lambda: "read again" in caplog.text, "it has the new certificate")
        assert await serial(both) != before
        done = len(served)
        await holds(lambda: len(served) > done + 20, "the load goes on")
        # httpx leaves a socket open if it is cancelled in a handshake.
        is_over.set()
        await asyncio.gather(*tasks)
        assert set(served) == {200}
        clients_ca.write_bytes(made.other_ca.read_bytes())

        async def is_refused() -> bool:
            try:
                await get(both, live.port, "/lag")
            except httpx.TransportError:
                return True
            return False

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
async def test_a_wrong_file_is_one_line_with_setting_file_and_cause(
    made: Certificates, setting: str, content: bytes | None, cause: str
) -> None:
    file = made.folder / "wrong"
    if content is not None:
        file.write_bytes(made.ca_key.read_bytes() if content == b"ca.key" else content)
    files = {"certfile": str(made.server), "keyfile": str(made.server), setting: str(file)}
    contexts = server_contexts(tls_of(made, made.ca)).value
    assert {context.minimum_version for context in contexts} == {ssl.TLSVersion.TLSv1_2}
    with pytest.raises(SettingsError, match=cause) as raised:
        server_contexts(HttpTlsSettings(**files, key_password="a secret"))
    assert str(raised.value).startswith(f"setting http_tls.{setting} = '{file}': ")
    assert "a secret" not in str(raised.value)


def show_many(live: LiveServer) -> None:
    for number in range(300):
        live.show(lag_event(query_id=f"q{number}", query=f"q{number}", reason="x" * 9_000))


@pytest.mark.parametrize(
    ("path", "end", "repeated"),
    [
        (b"/metrics", b"", 1),
        (b"/metrics", CLOSE, 1),
        (b"/lag?limit=1000", b"", 1),
        (b"/openapi.json", b"", 6),
    ],
)
async def test_a_client_that_does_not_read_is_cut_off(
    made: Certificates, path: bytes, end: bytes, repeated: int
) -> None:
    limits = LimitSettings(response_s=0.3)
    async with live_server(limits=limits, http_tls=tls_of(made)) as live:
        show_many(live)
        counters, server = live.pipeline.counters, live.http.server_state
        context = client_context(made)
        with await asyncio.to_thread(connect, context, live.port, REQUEST % (path, end) * repeated):
            await holds(lambda: counters.connections_cut_off == 1, "it is cut off")
            await holds(lambda: not server.connections, "nothing is left of it")
            await holds(lambda: not server.tasks, "nor of its request")
        assert len((await get(context, live.port, "/lag?limit=1000")).json()["queries"]) == 300


async def test_a_slow_reader_gets_all_of_a_large_response(made: Certificates) -> None:
    async with live_server(http_tls=tls_of(made)) as live:
        show_many(live)
        request = REQUEST % (b"/lag?limit=1000", CLOSE)
        connection = await asyncio.to_thread(connect, client_context(made), live.port, request)
        got = await asyncio.to_thread(read_all, connection)
        assert got.endswith((b"0\r\n\r\n", b"}"))
        assert len(got) > 2_000_000


async def test_a_handshake_counts_and_has_a_deadline(made: Certificates) -> None:
    limits = LimitSettings(connections_per_address=1, request_s=0.5)
    async with live_server(limits=limits, http_tls=tls_of(made)) as live:
        reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
        await holds(lambda: len(live.http.server_state.connections) == 1, "it is accepted")
        with pytest.raises(httpx.TransportError):
            await get(client_context(made), live.port, "/health/live")
        assert live.pipeline.counters.connections_refused == 1
        with suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b""
        writer.close()
        await holds(lambda: not live.http.server_state.connections, "nothing is left of it")
        for _ in range(3):
            assert (await get(client_context(made), live.port, "/health/live")).status_code == 200
            await holds(lambda: not live.http.server_state.connections, "it has ended")


async def test_idle_connections_and_handshakes_do_not_delay_the_end(
    made: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    context = client_context(made)
    async with live_server(http_tls=tls_of(made)) as live:
        handshake = socket.create_connection(("127.0.0.1", live.port))
        idle = await asyncio.to_thread(connect, context, live.port, REQUEST % (b"/lag", b""))
        assert (await asyncio.to_thread(idle.recv, 12)) == b"HTTP/1.1 200"
        await holds(lambda: len(live.http.server_state.connections) == 3, "all are accepted")
        began_s = time.monotonic()
    assert time.monotonic() - began_s < 1.5
    assert "Cancel" not in caplog.text
    idle.close()
    handshake.close()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a cycle of asyncio's own transport")
async def test_a_connection_that_ended_is_freed_without_the_garbage_collector(
    made: Certificates,
) -> None:
    async with live_server(http_tls=tls_of(made)) as live:

        def is_freed() -> bool:
            transports = (o for o in gc.get_objects() if isinstance(o, asyncio.Transport))
            return all((t.get_extra_info("sockname") or (0, 0))[1] != live.port for t in transports)

        gc.disable()
        gc.freeze()
        try:
            request = REQUEST % (b"/health/live", CLOSE)
            connection = await asyncio.to_thread(connect, client_context(made), live.port, request)
            assert (await asyncio.to_thread(read_all, connection)).startswith(b"HTTP/1.1 200")
            await holds(is_freed, "its transport is freed")
        finally:
            gc.unfreeze()
            gc.enable()


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

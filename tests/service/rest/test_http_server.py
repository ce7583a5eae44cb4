"""The HTTP side on real sockets: slow, idle and too many clients cost nobody else anything."""

from __future__ import annotations

import asyncio
import gc
import signal
import ssl
import subprocess
import sys
from contextlib import AsyncExitStack, ExitStack, aclosing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from sparklag_offsets.store import open_store
from sparklag_offsets.store.writer import StoreWriter
from sparklag_schemas import Settings, StoreSettings, decode_lag_event
from sparklag_schemas.settings import HttpTlsSettings, HttpTokenSettings, LimitSettings
from sparklag_service.access.token_file import create_token, revoke_token
from sparklag_service.instance_state import InstanceState
from sparklag_service.rest.http_server import HttpServer
from sparklag_service.server import bind, end_by_signals
from tests.certificates import Certificates
from tests.local_kafka import LocalKafka
from tests.messages import lag_event
from tests.offsets.store.batches import output, source
from tests.second_client import SecondClient
from tests.service.cli.test_cli import sparklag
from tests.service.live.live_server import LiveServer, ended, live_server
from tests.service.pipelines import pipeline_of
from tests.waiting import DEADLINE_S, holds

OUT_OF_FILES = b"out of system resource"
REQUEST = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
LAST_REQUEST = REQUEST.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")

Secured = tuple[dict[str, HttpTlsSettings], ssl.SSLContext | None]
"""Settings of the service, and the TLS of its clients."""


@pytest.fixture(params=["http", "https"])
def secured(request: pytest.FixtureRequest, certificates: Certificates) -> Secured:
    if request.param == "http":
        return {}, None
    return {"http_tls": certificates.http_tls()}, certificates.client_context()


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"", 0),
        (b"GET /health/live HTTP/1.1\r\nhost: loc", 0),
        (b"GET /health/live HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nabc", 1),
        (REQUEST + b"GET /health/live HT", 1),
    ],
    ids=["nothing", "half a head", "half a body", "half of a second request"],
)
async def test_a_request_that_does_not_arrive_is_given_up(sent: bytes, answered: int) -> None:
    async with live_server(limits=LimitSettings(request_s=0.3)) as live:
        assert (await ended(await live.connect(sent))).count(b"HTTP/1.1 200") == answered


async def test_beyond_the_limit_of_one_address_a_connection_is_refused_until_one_ends() -> None:
    limits = LimitSettings(connections_per_address=10, request_s=DEADLINE_S)
    async with live_server(limits=limits) as live:
        readers = [await live.connect() for _ in range(9)]
        assert await live.status() == 200
        last = await live.connect()
        refused = await ended(await live.connect())
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert live.pipeline.counters.connections_refused == 1
        assert not last.at_eof()
        assert not readers[0].at_eof()
    async with live_server(limits=LimitSettings(connections_per_address=1)) as live:
        for _ in range(3):
            assert await live.status() == 200


def show_many(live: LiveServer) -> None:
    for number in range(300):
        live.show(lag_event(query_id=f"q{number}", query=f"q{number}", reason="x" * 9_000))


@pytest.mark.parametrize(
    ("path", "head", "repeated"),
    [
        ("/metrics", "Host: x\r\n\r\n", 1),
        ("/metrics", "Host: x\r\nConnection: close\r\n\r\n", 1),
        ("/lag?limit=1000", "Host: x\r\n\r\n", 1),
        ("/openapi.json", "Host: x\r\n\r\n", 60),
        ("/health/live", "Host: x\r\n" + "a:b\r\n" * 300 + "\r\n", 1),
    ],
    ids=["a scrape", "the last response", "a list", "many requests at once", "many headers"],
)
async def test_a_client_that_does_not_read_is_cut_off(
    path: str, head: str, repeated: int, secured: Secured
) -> None:
    settings, tls = secured
    async with live_server(limits=LimitSettings(response_s=0.3), **settings) as live:
        show_many(live)
        counters, connections = live.pipeline.counters, live.http.server_state.connections
        async with live.not_reading(path, 4_096, head, repeated, tls):
            await holds(lambda: counters.connections_cut_off == 1, "it is cut off")
            await holds(lambda: not connections, "nothing is left of it")
            await holds(lambda: not live.http.server_state.tasks, "nor of its request")
        # All of a large response arrives before its connection ends.
        options: dict[str, Any] = {"verify": tls or True, "headers": {"Connection": "close"}}
        async with httpx.AsyncClient(**options, timeout=DEADLINE_S) as client:
            assert len((await client.get(f"{live.url}/lag?limit=1000")).json()["queries"]) == 300


async def test_what_waits_for_all_clients_is_bounded_and_others_get_theirs() -> None:
    """Each gets a text of its own, of 2.7 MB: the limit, and the largest beside it, are two."""
    async with live_server(limits=LimitSettings(unsent_mb=4)) as live, AsyncExitStack() as clients:
        show_many(live)
        for _ in range(20):
            await clients.enter_async_context(live.not_reading("/lag?limit=1000", 4_096))
        counters = live.pipeline.counters
        await holds(lambda: counters.connections_cut_off >= 18, "the slowest are cut off")
        await holds(lambda: len(live.http.server_state.connections) <= 2, "nothing is left of them")
        async with httpx.AsyncClient(timeout=DEADLINE_S) as client:
            assert len((await client.get(f"{live.url}/lag?limit=1000")).json()["queries"]) == 300


@pytest.mark.kafka
async def test_a_warning_with_any_name_is_one_line_of_the_response(
    kafka: LocalKafka, topic: str, second_client: SecondClient, tmp_path: Path
) -> None:
    second_client.produce(topic, [b"x"] * 10)
    second_client.delete_records(topic, {0: 8})
    url = f"sqlite:///{tmp_path}/offsets.db"
    at = source({topic: {0: 5}}, bootstrap_servers=kafka.bootstrap_servers)
    kept = open_store(url, create=True)
    names = ["a\nb", "a\r\nSet-Cookie: x", "\x1b[2J\x0b\x7f", " ends \t", "ü\u2028\x85", "x" * 999]
    reported_by = [output(0, at, query=name, query_id=f"id{n}") for n, name in enumerate(names)]
    async with aclosing(kept):
        await StoreWriter(kept, Settings()).write(reported_by)
    async with live_server(
        store=StoreSettings(url=url), bootstrap_servers=kafka.bootstrap_servers
    ) as live:
        async with httpx.AsyncClient(base_url=live.url, timeout=DEADLINE_S) as client:
            for name in names:
                given = await client.get(f"/offsets/{quote(name, safe='')}?on_deleted=earliest")
                assert (given.status_code, "set-cookie" in given.headers) == (200, False), name
                assert given.headers["sparklag-warning"].endswith("records; they are lost")


async def test_a_connection_that_ended_is_freed_without_the_garbage_collector(
    secured: Secured,
) -> None:
    settings, tls = secured
    if tls is not None and sys.version_info < (3, 11):
        pytest.skip("a cycle of asyncio's own transport")
    async with live_server(**settings) as live:

        def is_freed() -> bool:
            transports = (o for o in gc.get_objects() if isinstance(o, asyncio.Transport))
            return all((t.get_extra_info("sockname") or (0, 0))[1] != live.port for t in transports)

        # What was there before is not looked at: in a long run that holds the loop for 200 ms.
        gc.disable()
        gc.freeze()
        try:
            assert await live.status(tls=tls) == 200
            await holds(is_freed, "its transport is freed")
        finally:
            gc.unfreeze()
            gc.enable()


async def test_head_of_a_stream_ends_and_its_connection_serves_the_next_request(
    live: LiveServer,
) -> None:
    head = b"HEAD /stream HTTP/1.1\r\nhost: localhost\r\n\r\n"
    reader = await live.connect(head)
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE_S)
    assert answer.startswith(b"HTTP/1.1 200 ")
    await holds(lambda: not live.hub.reading, "nobody reads the stream")
    got = await ended(await live.connect(head + LAST_REQUEST))
    assert got.count(b"HTTP/1.1 200 ") == 2
    assert got.endswith(b'{"status":"live"}')


async def test_an_answer_does_not_say_which_server_gave_it(live: LiveServer) -> None:
    head = (await ended(await live.connect(LAST_REQUEST))).partition(b"\r\n\r\n")[0].lower()
    assert b"\r\nserver:" not in head
    assert b"\r\ndate:" in head


@pytest.mark.parametrize("name", ["a/b", "..", "."])
async def test_the_command_line_finds_a_name_like_a_path(live: LiveServer, name: str) -> None:
    event = lag_event(query=name)
    live.show(event)
    shown = await asyncio.to_thread(sparklag, "lag", name, "--json", "--url", live.url)
    assert decode_lag_event(shown.stdout.encode()) == event


@pytest.mark.parametrize(
    ("query_id", "exit_code", "line"),
    [
        ("lives", 1, "query lives is OK: its driver, checkpoint or group speaks"),
        ("orders", 2, "'orders' is a name, not an id: lives"),
        ("other", 2, "no query has the name or id 'other'"),
        ("\udcff", 2, "no query has the name or id '\ufffd'"),
    ],
)
async def test_a_refusal_is_one_line(
    live: LiveServer, query_id: str, exit_code: int, line: str
) -> None:
    live.show(lag_event(query_id="lives"))
    ended = await asyncio.to_thread(sparklag, "forget", query_id, "--url", live.url)
    assert ended.returncode == exit_code
    (error,) = ended.stderr.splitlines()
    assert line in error


FEW_FILES = """
import asyncio, logging, resource, sys
logging.basicConfig(level="WARNING")
from sparklag_schemas.settings import LimitSettings
from tests.service.live.live_server import live_server
async def run():
    async with live_server(limits=LimitSettings(connections_per_address=10_000)) as service:
        # After it has counted how many connections it may have.
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        print(service.port, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
asyncio.run(run())
"""


async def test_where_files_run_out_it_goes_on_and_fills_no_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", FEW_FILES),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        with ExitStack() as connections:
            for _ in range(200):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                connections.callback(writer.close)
            await holds(lambda: OUT_OF_FILES in log.read_bytes(), "it has no files left")
            # asyncio tries again once a second.
            await asyncio.sleep(3)
        async with httpx.AsyncClient(timeout=DEADLINE_S) as client:
            answer = await client.get(f"http://127.0.0.1:{port}/health/live")
        assert answer.status_code == 200
    finally:
        await process.communicate(b"\n")
    assert process.returncode == 0, log.read_text()[-2_000:]
    assert log.read_bytes().count(OUT_OF_FILES) < 10


async def test_one_ctrl_c_does_not_cut_off_open_requests() -> None:
    server = HttpServer(InstanceState(pipeline_of(Settings())))
    with bind("127.0.0.1", 0) as listening:
        end_by_signals(server)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await holds(lambda: server.started, "it serves")
        signal.raise_signal(signal.SIGINT)
        await asyncio.wait_for(serving, DEADLINE_S)
    assert not server.force_exit


async def test_a_revoked_token_ends_its_stream_without_another_request(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    token = create_token(tokens, "lag", ["lag"], [], [], None)
    async with live_server(http_tokens=HttpTokenSettings(file=str(tokens))) as live:
        live.hub.keep_alive_s = 0.1
        head = f"GET /stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        reader = await live.connect(f"{head}Connection: close\r\n\r\n".encode())
        await reader.readuntil(b"retry:")
        revoke_token(tokens, "lag")
        await ended(reader)

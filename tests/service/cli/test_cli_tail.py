"""`sparklag tail --url`, and services behind a path of a proxy."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
from werkzeug import Request, Response

from sparklag_schemas import encode
from sparklag_service.cli.requests import base_url
from sparklag_service.errors import ServiceError
from tests.http_server import HttpServer, raw_path
from tests.messages import QUERY_ID, lag_event
from tests.service.cli.terminals import command, environment
from tests.service.cli.test_cli import refused, sparklag
from tests.service.live.live_server import LiveServer
from tests.waiting import DEADLINE_S

# Processes of their own, which take seconds.
pytestmark = [pytest.mark.kafka]

Answer = subprocess.CompletedProcess[str]


async def run(*arguments: str) -> Answer:
    return await asyncio.to_thread(sparklag, *arguments)


@contextmanager
def following(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command("tail", *arguments),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def test_it_begins_with_the_newest_event_of_each_query(live: LiveServer) -> None:
    document = live.show(lag_event())
    live.show(lag_event(query_id="hostile", query="\x1b[2J[bold]x"), 1)
    followed = await run("tail", "--url", live.url, "-n", "2")
    assert (followed.returncode, followed.stderr) == (
        0,
        f"sparklag: waiting for lag events from {live.url}\n",
    )
    assert followed.stdout.isascii()
    first, second = followed.stdout.splitlines()
    assert "orders                   OK        lag           65" in first
    assert r"\x1b[2J[bold]x" in second
    one = await run("tail", QUERY_ID[:8], "--url", live.url, "-n", "1", "--json")
    assert json.loads(one.stdout) == json.loads(document)


async def test_it_reports_that_it_waits_and_ctrl_c_ends_it(live: LiveServer) -> None:
    with following("--url", live.url) as process:
        assert process.stderr is not None
        line = await asyncio.wait_for(asyncio.to_thread(process.stderr.readline), DEADLINE_S)
        assert line == f"sparklag: waiting for lag events from {live.url}\n"
        process.send_signal(signal.SIGINT)
        stdout, stderr = await asyncio.to_thread(process.communicate, timeout=DEADLINE_S)
    assert (process.returncode, stdout, stderr) == (130, "", "")


async def test_it_ends_with_its_query(live: LiveServer) -> None:
    live.show(lag_event())
    with following("orders", "--url", live.url) as process:
        assert process.stdout is not None
        await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), DEADLINE_S)
        live.forget(QUERY_ID)
        _, stderr = await asyncio.to_thread(process.communicate, timeout=DEADLINE_S)
    assert process.returncode == 0
    assert stderr.endswith(f"sparklag: query {QUERY_ID} is forgotten\n")


def cut_stream(*bodies: bytes | None) -> HttpServer:
    """A fake service whose connections end after each of `bodies`; None is a refusal."""
    left = iter(bodies)

    def respond(_: Request) -> Response:
        body = next(left)
        if body is None:
            problem = {"type": "tag:x:problem/too-many-readers", "detail": "try later"}
            return Response(json.dumps(problem), 503, content_type="application/problem+json")
        return Response(body, content_type="text/event-stream")

    return HttpServer(respond)


def lag_frame(event_id: str, **fields: object) -> bytes:
    data = encode(lag_event(**fields))
    return b"retry: 10\nid: " + event_id.encode() + b"\nevent: lag\ndata: " + data + b"\n\n"


def test_after_a_cut_it_goes_on_where_it_was_and_reports_what_is_missing() -> None:
    gap = b'event: gap\ndata: {"since": "0:1", "reason": "they are gone"}\n\n'
    cut = lag_frame("0:2")[:-1]
    last = gap + lag_frame("0:9", total_lag=126_671)
    with cut_stream(lag_frame("0:1") + cut, None, None, last) as service:
        followed = sparklag("tail", "--url", service.url, "-n", "2")
    assert followed.returncode == 0, followed.stderr
    assert [line.split()[4] for line in followed.stdout.splitlines()] == ["65", "126,671"]
    last_ids = [request.headers.get("last-event-id") for request, _ in service.log]
    assert last_ids == [None, "0:1", "0:1", "0:1"]
    assert followed.stderr.splitlines() == [
        f"sparklag: waiting for lag events from {service.url}",
        f"sparklag: the service at {service.url} ended the stream: connecting again",
        f"sparklag: {service.url}: try later: connecting again",
        f"sparklag: reconnected to {service.url}",
        "sparklag: events after 0:1 are missing: they are gone",
    ]


def test_an_event_that_is_none_is_passed_over() -> None:
    broken = b'event: lag\ndata: {"query": 1}\n\nevent: lag\ndata: \xff\x1b[2J\n\n'
    with cut_stream(broken + lag_frame("0:1")) as service:
        followed = sparklag("tail", "--url", service.url, "-n", "1")
    assert followed.returncode == 0, followed.stderr
    assert len(followed.stdout.splitlines()) == 1
    _, *lines = followed.stderr.splitlines()
    assert [line.startswith("sparklag: skipped an event: ") for line in lines] == [True, True]


def behind_a_path(target: str) -> HttpServer:
    """A proxy with the service below /sparklag/, and a page of another program elsewhere."""

    def respond(request: Request) -> Response:
        if not request.path.startswith("/sparklag/"):
            return Response(b"<html>\x1b[2J</html>", content_type="text/html")
        url = target + raw_path(request).removeprefix("/sparklag")
        with httpx.stream("GET", url, timeout=DEADLINE_S) as response:
            content_type = response.headers["content-type"]
            chunks = response.iter_raw()
            # A stream has no end.
            body = next(chunks) if content_type.startswith("text/event") else b"".join(chunks)
        return Response(body, response.status_code, content_type=content_type)

    return HttpServer(respond)


@pytest.mark.parametrize("slash", ["", "/"])
async def test_every_command_reaches_a_service_behind_a_path(live: LiveServer, slash: str) -> None:
    live.show(lag_event(query="a/b"))
    with behind_a_path(live.url) as proxy:
        url = f"{proxy.url}/sparklag{slash}"
        expected: dict[tuple[str, ...], Callable[[str], bool]] = {
            ("lag", "a/b"): lambda text: "65 records" in text,
            ("queries",): lambda text: f"a/b\t{QUERY_ID}" in text,
            ("tail", "a/b", "-n", "1"): lambda text: "lag           65" in text,
        }
        for arguments, is_there in expected.items():
            answer = await run(*arguments, "--url", url)
            # `queries` reports that this service has no Kafka.
            assert answer.returncode == (2 if arguments == ("queries",) else 0), answer.stderr
            assert is_there(answer.stdout), arguments


async def test_what_is_no_service_is_one_line(live: LiveServer) -> None:
    with behind_a_path(live.url) as proxy:
        for arguments in (("lag", "orders"), ("queries",), ("tail",), ("tail", "orders")):
            line = refused(await run(*arguments, "--url", proxy.url))
            assert line == (
                f"sparklag: {proxy.url} does not answer like a sparklag service: check --url"
            )
    live.show(lag_event())
    unknown = refused(await run("tail", "ordres", "--url", live.url))
    assert "no query has the name or id 'ordres': alike: orders" in unknown


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8085", "http://", "ftp://host", "http://host/?query=1", "http://host/#lag"]
)
def test_a_wrong_url_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(
        ServiceError, match="is not the address of a service: expected http://host:port"
    ):
        base_url(url)

"""What authentication costs `GET /lag/{query}` of 50 partitions, and what sparklag adds to a bare
FastAPI route with the same bytes.

Each side serves in a process of its own, with one worker: a bare route under uvicorn, sparklag
without authentication, with a token, and with a JWT of a real issuer. wrk asks them in turn.
"""

from __future__ import annotations

import asyncio
import gc
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import httpx
import uvicorn
from fastapi import FastAPI, Response

from benchmarks.comparison import Row, say, times
from benchmarks.live_stream import lag_event
from benchmarks.service_process import wait_for
from sparklag_jobs.broker.child_process import ChildProcess
from sparklag_schemas import encode
from sparklag_schemas.runtime.garbage_collection import SurvivorsFrozen
from sparklag_schemas.settings import load_settings
from sparklag_service.access.token_file import create_token
from sparklag_service.instance_state import InstanceState
from sparklag_service.intakes.topic import TopicIntake
from sparklag_service.pipeline import Pipeline
from sparklag_service.rest.http_server import HttpServer
from sparklag_service.server import bind
from sparklag_service.view.view import Entry
from tests.debian_packages import library_path, unpacked_packages, with_libraries
from tests.issuer import AUDIENCE, Issuer
from tests.waiting import holds

SHARES: Final = {"no authentication": 0.9, "a token": 0.95, "a JWT": 0.85}
"""Of the requests of a bare FastAPI route, and of those without authentication."""

_BARE: Final = "a bare FastAPI route"
_PARTITIONS: Final = 50
_ROUNDS: Final = 10
_WRK_S: Final = 2
_QUERY: Final = "query-0"


def run() -> list[Row]:
    """Rows for the requests a second of each side."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        issuer = stack.enter_context(Issuer())
        token = create_token(folder / "tokens.json", "reader", ["lag"], [], [], None)
        # Before the first of them: their clients would be limited.
        many = {"SPARKLAG_HTTP_TOKENS__REQUESTS_PER_S": "1000000"}
        by_file = {"SPARKLAG_HTTP_TOKENS__FILE": str(folder / "tokens.json")}
        by_issuer = {
            "SPARKLAG_HTTP_JWT__ISSUER": issuer.url,
            "SPARKLAG_HTTP_JWT__AUDIENCES": AUDIENCE,
        }
        jwt = issuer.token(exp=time.time() + 3_600)
        plain = "no authentication"
        settings = {_BARE: {}, plain: {}, "a token": many | by_file, "a JWT": many | by_issuer}
        urls = {
            side: stack.enter_context(_process(folder, side, environment))
            for side, environment in settings.items()
        }
        for side, url in urls.items():
            # Else nothing would be measured.
            status = httpx.get(f"{url}/lag/{_QUERY}").status_code
            if status != (401 if settings[side] else 200):
                raise RuntimeError(f"{side}: status {status} without a token")
        # Both sides of a row get the same header, which uvicorn reads whatever it is for.
        compared = {(plain, _BARE): "", ("a token", plain): token, ("a JWT", plain): jwt}
        rates: dict[tuple[str, str], list[tuple[float, float]]] = {pair: [] for pair in compared}
        for number in range(_ROUNDS + 1):
            say(f"http_auth: round {number} of {_ROUNDS}")
            for pair, header in compared.items():
                ours, other = (_wrk(f"{urls[side]}/lag/{_QUERY}", header) for side in pair)
                # The first is a warm-up.
                rates[pair] += [(ours, other)] if number else []
    return [_row(*pair, *zip(*rates[pair], strict=True)) for pair in compared]


def _row(side: str, against: str, ours: Sequence[float], others: Sequence[float]) -> Row:
    # Of the same round: the machine's speed changes.
    ratios = [one / other for one, other in zip(ours, others, strict=True)]
    reach = SHARES[side]
    ratio = median(ratios)
    return Row(
        f"GET /lag/{{query}}, {_PARTITIONS} partitions, wrk, one worker, {side}",
        f"{median(ours):,.0f} a second",
        f"{median(others):,.0f}, {against}",
        f"{times(ratio)} ({min(ratios):.2f} to {max(ratios):.2f})",
        f"≥ {times(reach)}",
        ratio >= reach,
    )


@contextmanager
def _process(folder: Path, side: str, settings: Mapping[str, str]) -> Iterator[str]:
    log_path = folder / f"{side}.log"
    environment = {"PYTHONPATH": ":".join(sys.path), **settings}
    command = [sys.executable, "-m", "benchmarks.http_auth", side]
    process = ChildProcess(
        side, command, log_path=log_path, environment=environment, directory=folder
    )
    process.start()
    try:
        port = wait_for(lambda: re.search(r"port (\d+)", log_path.read_text()))[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        process.stop()


def _wrk(url: str, token: str) -> float:
    """Requests a second."""
    unpacked = unpacked_packages(
        "wrk", ["wrk"], instead="install wrk", needs=r"libluajit-.*|libssl.*"
    )
    header = ["-H", f"Authorization: Bearer {token}"] if token else []
    command = [str(unpacked / "usr/bin/wrk"), "-t1", "-c8", f"-d{_WRK_S}s", *header, url]
    environment = with_libraries(library_path(unpacked))
    output = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout
    rate = re.search(r"Requests/sec: +([\d.]+)", output)
    if rate is None or "Non-2xx" in output:
        raise RuntimeError(f"wrk: {output}")
    return float(rate[1])


async def _serve(side: str) -> None:
    event = lag_event(0, None, _PARTITIONS)
    document = encode(event)
    server: uvicorn.Server
    if side == _BARE:
        app = FastAPI()

        @app.get("/lag/{query}")
        async def get_lag(query: str) -> Response:
            return Response(document, media_type="application/json")

        # Its own socket, as `uvicorn app` has it: asyncio sets TCP_NODELAY only where the socket
        # names its protocol, and a response in two writes would wait 40 ms for an acknowledgement.
        config = uvicorn.Config(app, port=0, log_config=None, access_log=False, lifespan="off")
        server, sockets = uvicorn.Server(config), None
    else:
        # The event stays as it is.
        overrides = {"heartbeat_s": 36_000.0, "bootstrap_servers": "127.0.0.1:1"}
        resolved = load_settings(overrides=overrides).resolved()
        pipeline = Pipeline(resolved, partial(TopicIntake, resolved), "service")
        pipeline.view_reader.caught_up.set()
        pipeline.view.put(Entry(event, document, time.monotonic(), 0, 0))
        gc.callbacks.append(SurvivorsFrozen())
        server, sockets = HttpServer(InstanceState(pipeline)), [bind("127.0.0.1", 0)]
    serving = asyncio.create_task(server.serve(sockets=sockets))
    await holds(lambda: server.started, "it serves")
    listening = sockets or server.servers[0].sockets
    print(f"port {listening[0].getsockname()[1]}", flush=True)
    await serving


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))

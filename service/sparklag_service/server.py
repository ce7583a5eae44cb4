"""The lifecycle of a service, in its own process or in a driver: bind, start, serve, shut down."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import socket
from collections.abc import Collection, Coroutine
from contextlib import ExitStack
from functools import partial
from typing import Any

from sparklag_kafka.access import quiet_client_logs
from sparklag_schemas import LagEvent, Observation, ResolvedSettings, Settings, SettingsError
from sparklag_schemas.runtime.garbage_collection import SurvivorsFrozen
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.runtime.tasks import call_on_signals, run_in_layers
from sparklag_service.errors import PortInUse, ServiceError
from sparklag_service.instance_state import InstanceState
from sparklag_service.intakes.in_process import DriverStats, InProcessIntake
from sparklag_service.intakes.topic import TopicIntake
from sparklag_service.metrics.otlp import MetricsPush, OtlpPush, TracesPush, check_otlp
from sparklag_service.pipeline import Pipeline
from sparklag_service.publishing.traces import PublishedTraces
from sparklag_service.rest.http_server import HttpServer
from sparklag_service.view.view import View

_log = logging.getLogger(__name__)
_SHARE_OF_DRAINING = 0.4
"""Share of the shutdown time for the drain; most of the rest is for leaving the group."""


async def serve(settings: Settings) -> None:
    """Run the standalone service until SIGINT or SIGTERM. Waits for a Kafka that does not respond.

    Raises SettingsError without `bootstrap_servers`, or where everyone would be let in unasked;
    PortInUse.
    """
    resolved = settings.resolved()
    check_otlp(settings)
    settings.check_http()
    quiet_client_logs()
    ports = (settings.http_port, settings.http_monitoring_port)
    listening = [bind(settings.http_host, port) for port in ports if port is not None]
    pipeline = Pipeline(resolved, partial(TopicIntake, resolved), "service")
    gc.callbacks.append(SurvivorsFrozen())
    await run_until_http_ends(pipeline, *listening, until_signal=True)


class EmbeddedService:
    """The service inside a driver. The driver reads its view."""

    def __init__(self) -> None:
        self._pipeline: Pipeline | None = None
        self._started = asyncio.Event()

    async def run(
        self, queue: NewestQueue[Observation], settings: ResolvedSettings, stats: DriverStats
    ) -> None:
        """Run on the driver's own queue until cancelled.

        Takes a free port if the HTTP port is in use: see `stats.url`.
        """
        try:
            listening = bind(settings.http_host, settings.http_port)
        except PortInUse as error:
            listening = bind(settings.http_host, 0)
            _log.warning("sparklag: %s; took port %d", error, listening.getsockname()[1])
        stats.url = _url(settings, listening)
        self._pipeline = Pipeline(
            settings,
            lambda deliveries, *_: InProcessIntake(
                queue, stats, deliveries, settings.traces.endpoint is not None
            ),
            "embedded",
        )
        self._started.set()
        await run_until_http_ends(self._pipeline, listening)

    async def find(self, query: str) -> list[LagEvent]:
        """The newest events of the queries that match, see View.find. Waits for the view."""
        return [entry.event for entry in (await self._view()).find(query)]

    async def newest(self, query_ids: Collection[str]) -> list[LagEvent]:
        """The newest event of each of these queries that has one. Waits for the view."""
        view = await self._view()
        entries = (view.get(query_id) for query_id in query_ids)
        return [view.shown(entry).event for entry in entries if entry is not None]

    def not_ready(self) -> str:
        """Why `find` and `newest` still wait."""
        if self._pipeline is None:
            return "it has not started"
        reasons = InstanceState(self._pipeline).not_ready()
        return "; ".join(f"{part}: {reason}" for part, reason in reasons.items())

    async def _view(self) -> View:
        await self._started.wait()
        assert self._pipeline is not None
        await self._pipeline.view_reader.caught_up.wait()
        return self._pipeline.view


async def run_until_http_ends(
    pipeline: Pipeline, *listening: socket.socket, until_signal: bool = False
) -> None:
    """Run `pipeline` and its REST interface until HTTP ends; then drain.

    `until_signal`: SIGINT and SIGTERM end HTTP, from this call on.
    """
    settings = pipeline.settings
    timeout_s, state = settings.shutdown_timeout_s, InstanceState(pipeline)
    http = HttpServer(state)
    if until_signal:
        _log.info("serving %s to %s", _url(settings, listening[0]), _admitted(settings))
        end_by_signals(http)

    async def serve_http() -> None:
        try:
            await http.serve(sockets=list(listening))
        finally:
            http.close()
        if not await pipeline.drain(_SHARE_OF_DRAINING * timeout_s):
            _log.warning("ended before every observation was published; they are read again")

    with ExitStack() as stack:
        for each in listening:
            stack.enter_context(each)
        # HTTP and the pushes read the pipeline's state: the pipeline ends last.
        await run_in_layers(
            [pipeline.run()],
            _pushing(state, pipeline.publishing.traces),
            [serve_http()],
            cancel_again_s=2 * timeout_s,
        )


def _url(settings: Settings, listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"{settings.http_scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _admitted(settings: Settings) -> str:
    if settings.needs_token:
        return "everyone with a token"
    return "everyone who reaches it" if settings.http_auth == "none" else "this machine"


def end_by_signals(http: HttpServer) -> None:
    """End `http` on SIGINT and SIGTERM. Call this before anything starts that must be drained.
    uvicorn raises the signals again as it ends: without this handler they would kill the
    process."""
    # uvicorn gets the signal as well. `handle_exit` would count as a second Ctrl-C, and cut off
    # open requests.
    call_on_signals(lambda _: setattr(http, "should_exit", True))


def _pushing(state: InstanceState, traces: PublishedTraces) -> list[Coroutine[Any, Any, None]]:
    """The tasks that push metrics and traces, if configured. A driver continues without them."""
    settings = state.settings
    try:
        check_otlp(settings)
    except SettingsError as error:
        _log.warning("neither metrics nor traces are pushed: %s", error)
        return []
    pushes: list[OtlpPush] = []
    if settings.otlp.endpoint is not None:
        pushes.append(MetricsPush(state))
    if settings.traces.endpoint is not None:
        pushes.append(TracesPush(state, traces))
    return [push.run() for push in pushes]


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises PortInUse, or ServiceError for the rest.

    A client that connects before uvicorn serves waits, and is not refused.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    if os.name == "posix":  # Windows would let two processes share the port
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"port {port} on {host} is in use: choose another with --http-port or"
                " SPARKLAG_HTTP_PORT (0 takes a free one)"
            ) from error
        raise ServiceError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return listening

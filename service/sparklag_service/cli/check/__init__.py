"""`sparklag check`: all checks in order, as a table or JSON; the checks of a service."""

from __future__ import annotations

import asyncio
import platform
from contextlib import aclosing
from dataclasses import asdict
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Final

import httpx
import msgspec
import typer
from rich.table import Table
from rich.text import Text

from sparklag_kafka.access import quiet_client_logs
from sparklag_offsets.checkpoints import CheckpointStore
from sparklag_offsets.errors import CheckpointError, StoreError
from sparklag_offsets.store import open_store
from sparklag_schemas import ResolvedSettings, Settings, SparklagError
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.codec import NOT_JSON
from sparklag_schemas.messages.enumerations import Mark
from sparklag_schemas.presentation.rows import COLOURS
from sparklag_schemas.presentation.tables import Trimmed, plain
from sparklag_schemas.service_access import ServiceAccess
from sparklag_schemas.text.locations import redact_location
from sparklag_service import VERSION
from sparklag_service.cli.check.kafka import check_kafka
from sparklag_service.cli.check.result import CheckResult, bad, clock_result, note, ok
from sparklag_service.cli.requests import base_url, extend, options
from sparklag_service.cli.terminal import (
    DEFAULT_URL,
    BootstrapServers,
    Config,
    Json,
    Url,
    console,
    kafka_settings,
    print_json,
)

_MARKS: Final[dict[str, Mark]] = {"ok": "ok", "note": "warn", "bad": "bad"}
_TIMEOUT_S: Final = 5.0
_DATE_ACCURACY_S: Final = 1.0
"""The Date header has whole seconds, and uvicorn renews it once a second."""


def check(
    bootstrap_servers: BootstrapServers = None,
    config: Config = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Check Kafka, topics, rights, clocks, versions and the running service, and what to do."""
    settings = kafka_settings(config, bootstrap_servers)
    quiet_client_logs()
    results = asyncio.run(diagnose(settings, url))
    if as_json:
        print_json([asdict(result) for result in results])
    else:
        screen, table = console(wrap=True), Table.grid(padding=(0, 2, 0, 0))
        # A terminal has what to do below what is wrong, a pipe one line for each result.
        separator = "\n" if screen.is_terminal else "; "
        for result in results:
            text = Text(separator).join(Text(plain(t)) for t in (result.text, result.remedy) if t)
            state = Text(result.state, style=COLOURS[_MARKS[result.state]])
            table.add_row(state, result.check, text)
        screen.print(Trimmed(table))
    if not all(result.ok for result in results):
        raise typer.Exit(1)


async def diagnose(settings: ResolvedSettings, url: str = DEFAULT_URL) -> list[CheckResult]:
    """Check this program and Kafka, then the schema registry, the watched checkpoints and the
    offset store, then the service at `url`."""
    this = f"sparklag {VERSION}, Python {platform.python_version()}"
    results = [
        ok("versions", this),
        *await check_kafka(settings),
        *await _check_registry(settings),
        *await _check_checkpoints(settings),
        *await _check_store(settings),
        *await check_service(ServiceAccess(base_url(url), settings.service_client)),
    ]
    order = list(dict.fromkeys(result.check for result in results))
    return sorted(results, key=lambda result: order.index(result.check))


async def _check_registry(settings: Settings) -> list[CheckResult]:
    if settings.registry.url is None:
        return []
    try:
        missing = await MessageFormats(settings).unregistered()
    except SparklagError as error:
        return [bad("registry", str(error), "messages in Avro wait for it")]
    results = [ok("registry", f"schema registry {settings.registry.url} answers")]
    remedy = "`sparklag topics create` registers it now"
    if settings.registry.register:
        remedy += ", each writer when it starts"
    return results + [
        bad("registry", f"the schema of topic {topic} is not registered", remedy)
        for topic in missing
    ]


async def _check_store(settings: Settings) -> list[CheckResult]:
    if settings.store.url is None:
        return []
    try:
        async with aclosing(open_store(settings.store.url)) as store:
            queries = await store.queries()
    except StoreError as error:
        return [bad("store", str(error), "batches are not recorded until it works")]
    return [ok("store", f"may read the offset store at {store.shown}, {len(queries)} queries")]


async def _check_checkpoints(settings: Settings) -> list[CheckResult]:
    patterns = settings.checkpoint_patterns
    if not patterns:
        return []
    store = CheckpointStore(settings.checkpoints.storage, settings.checkpoints.timeout_s)
    loop = asyncio.get_running_loop()
    checks = [
        loop.run_in_executor(None, _check_checkpoint, store, pattern) for pattern, _ in patterns
    ]
    try:
        return list(await asyncio.gather(*checks))
    finally:
        await loop.run_in_executor(None, store.close)


def _check_checkpoint(store: CheckpointStore, pattern: str) -> CheckResult:
    try:
        locations = store.find(pattern)
        store.reader(locations[0]).poll()
    except CheckpointError as error:
        return bad("checkpoints", str(error), "correct the location, or the right to read it")
    many = f", {len(locations)} of them" if len(locations) > 1 else ""
    return ok("checkpoints", f"may read checkpoints {redact_location(pattern)}{many}")


class _Ready(msgspec.Struct):
    """The response of `GET /health/ready`."""

    status: str
    failing: dict[str, str]
    degraded: dict[str, str] = {}
    queries: int | None = None
    """None: the service wants a token for every query."""
    version: str | None = None


async def check_service(service: ServiceAccess) -> list[CheckResult]:
    """Check readiness, clock and version of a service. Raises SettingsError."""
    shown, request_options = service.shown, options(service) | {"timeout": _TIMEOUT_S}
    try:
        began, body = datetime.now(timezone.utc), bytearray()
        async with (
            httpx.AsyncClient(**request_options) as client,
            client.stream("GET", f"{service.url}/health/ready") as response,
        ):
            async for chunk in response.aiter_raw():
                extend(body, chunk, service.url)
            took_s = (datetime.now(timezone.utc) - began).total_seconds()
        ready = msgspec.json.decode(body, type=_Ready)
    except httpx.HTTPError as error:
        if (problem := service.tls_problem(error, was_ended=False)) is not None:
            return [bad("service", f"{shown}: {problem}", "correct it, or --url")]
        remedy = "`sparklag serve` starts one; --url says where it is"
        return [note("service", f"no service answers at {shown}", remedy)]
    except NOT_JSON:
        return [
            note("service", f"what answers at {shown} is no sparklag service", "is --url right?")
        ]
    results = [*_readiness(ready, shown), _version(ready.version)]
    if ready.queries is None:
        text = "the service tells more with a token for every query"
        results[-1] = note("service", text, "set service_client.token_file")
    try:
        date = parsedate_to_datetime(response.headers["date"])
    except (KeyError, ValueError):
        return results
    if date.tzinfo is None:  # not an HTTP date: a proxy may add a second header
        return results
    ahead_s = (date - began).total_seconds() + _DATE_ACCURACY_S - took_s / 2
    accuracy_s = _DATE_ACCURACY_S + took_s / 2
    return [*results, clock_result("the service", ahead_s, accuracy_s)]


def _readiness(ready: _Ready, shown: str) -> list[CheckResult]:
    degraded = [
        note("service", f"{part}: {reason}", "the rest goes on: see the service's log")
        for part, reason in ready.degraded.items()
    ]
    if not ready.failing:
        count = "" if ready.queries is None else f", queries: {ready.queries}"
        text = f"the service at {shown} is ready: its view is complete{count}"
        return [ok("service", text), *degraded]
    remedies = {"view": "it reads the lag topic: wait, or see the service's log"}
    return [
        bad(
            "service",
            f"the service at {shown} is not ready: {part}: {reason}",
            remedies.get(part, "see the service's log"),
        )
        for part, reason in ready.failing.items()
    ] + degraded


def _version(version: str | None) -> CheckResult:
    if version == VERSION:
        return ok("versions", f"the service has version {version}, as this command")
    other = "an older version" if version is None else f"version {version}"
    text = f"the service has {other}, this command {VERSION}"
    return note("versions", text, "upgrade the older one")

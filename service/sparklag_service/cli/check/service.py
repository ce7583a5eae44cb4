"""What a service that runs says of itself: whether its view is complete, its clock, its version."""

from __future__ import annotations

from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Final

import httpx
import msgspec

from sparklag_schemas.codec import NOT_JSON
from sparklag_schemas.text.locations import shown_url
from sparklag_service import VERSION
from sparklag_service.cli.check.result import CheckResult, bad, clock_result, note, ok
from sparklag_service.cli.requests import UNCOMPRESSED, base_url, extend

_TIMEOUT_S: Final = 5.0
_DATE_ACCURACY_S: Final = 0.5
"""The header Date has whole seconds."""


class _Ready(msgspec.Struct):
    """`GET /health/ready`."""

    status: str
    failing: dict[str, str]
    degraded: dict[str, str]
    queries: int
    version: str | None = None


async def check_service(url: str) -> list[CheckResult]:
    """Raises ServiceError where `url` is no address."""
    shown = shown_url(url)
    address = f"{base_url(url)}/health/ready"
    try:
        began, body = datetime.now(timezone.utc), bytearray()
        async with (
            httpx.AsyncClient(timeout=_TIMEOUT_S, headers=UNCOMPRESSED) as client,
            client.stream("GET", address) as response,
        ):
            async for chunk in response.aiter_raw():
                extend(body, chunk, url)
            took_s = (datetime.now(timezone.utc) - began).total_seconds()
        ready = msgspec.json.decode(body, type=_Ready)
    except httpx.HTTPError:
        remedy = "`sparklag serve` starts one; --url says where it is"
        return [note("service", f"no service answers at {shown}", remedy)]
    except NOT_JSON:
        return [
            note("service", f"what answers at {shown} is no sparklag service", "is --url right?")
        ]
    results = [*_readiness(ready, shown), _version(ready.version, shown)]
    try:
        date = parsedate_to_datetime(response.headers["date"])
    except (KeyError, ValueError):
        return results
    if date.tzinfo is None:  # No date of HTTP: a proxy may add a second one.
        return results
    ahead_s = (date - began).total_seconds() + _DATE_ACCURACY_S - took_s / 2
    accuracy_s = _DATE_ACCURACY_S + took_s / 2
    return [*results, clock_result(f"the service at {shown}", ahead_s, accuracy_s)]


def _readiness(ready: _Ready, shown: str) -> list[CheckResult]:
    degraded = [
        note("service", f"{part}: {reason}", "the rest goes on: see the service's log")
        for part, reason in ready.degraded.items()
    ]
    if not ready.failing:
        text = f"the service at {shown} is ready: its view is complete, queries: {ready.queries}"
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


def _version(version: str | None, shown: str) -> CheckResult:
    if version == VERSION:
        return ok("versions", f"the service at {shown} has version {version}, as this command")
    other = "an older version" if version is None else f"version {version}"
    text = f"the service at {shown} has {other}, this command {VERSION}"
    return note("versions", text, "upgrade the older one")

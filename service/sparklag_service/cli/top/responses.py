"""What `top` reads from the service: the fields that it shows of `GET /lag` and of a history."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from sparklag_schemas.bounds import Count, EpochMs
from sparklag_schemas.rest_interface import path_segment
from sparklag_service.cli.requests import ServiceClient, decoded
from sparklag_service.cli.summary import Summary

_PAGE: Final = "1000"
"""Queries in a response: the most that the service takes."""


class LagPage(Struct, frozen=True, kw_only=True):
    """A page of `GET /lag`."""

    queries: list[Summary]
    next_cursor: str | None = None
    failing: dict[str, str] | None = None
    """Parts of the service that are not ready, with the reason."""


class LagPoint(Struct, frozen=True, kw_only=True):
    """A step of a query's history. None: unknown."""

    measured_at: EpochMs
    max_total_lag: Count | None = None


class _HistoryPage(Struct, frozen=True, kw_only=True):
    points: list[LagPoint]


async def read_fleet(client: ServiceClient) -> LagPage:
    """All pages of `GET /lag` as one. Raises ServiceError."""
    parameters = {"limit": _PAGE}
    queries: list[Summary] = []
    while True:
        page = decoded(await client.get("/lag", parameters), LagPage, client.url)
        queries += page.queries
        if page.next_cursor is None:
            return msgspec.structs.replace(page, queries=queries)
        parameters["cursor"] = page.next_cursor


async def read_history(client: ServiceClient, query_id: str, step_s: int) -> list[LagPoint]:
    """The query's last hour, in steps of about `step_s`. Raises ServiceError."""
    path = f"/lag/{path_segment(query_id)}/history"
    content = await client.get(path, {"since": "1h", "step": f"{step_s}s"})
    return decoded(content, _HistoryPage, client.url).points

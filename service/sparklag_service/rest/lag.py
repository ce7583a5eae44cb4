"""`GET /lag`, `GET /lag/{query}` and its history: the newest events, and totals over time."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from fastapi import FastAPI, Query, Request, Response
from msgspec import Raw, Struct
from pydantic import BeforeValidator

from sparklag_schemas import Status
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.history.page import time_range
from sparklag_service.rest import problems
from sparklag_service.rest.backend import Backend
from sparklag_service.rest.find_query import find_query
from sparklag_service.rest.health import degraded, failing
from sparklag_service.rest.listing import CURSOR, MAX_PAGE, Filter, page
from sparklag_service.rest.openapi import JSON, QUERY_PROBLEMS, REFUSED, ref

_TIME: Final = "Epoch milliseconds, ISO 8601, or a duration before now: `15m`, `24h`."


class _LagPage(Struct):
    queries: list[Raw]
    next_cursor: str | None
    failing: dict[str, str]
    degraded: dict[str, str]


def add_lag(app: FastAPI, backend: Backend) -> None:
    """The three routes."""

    @app.get(
        "/lag",
        tags=["lag"],
        summary="Every query's summary",
        responses={200: {"content": {JSON: {"schema": ref("LagPage")}}}, 422: REFUSED},
    )
    async def list_lag(
        request: Request,
        status: Annotated[
            Annotated[Status, BeforeValidator(str.upper)] | None,
            Query(description="Only queries in this state; in any case."),
        ] = None,
        topic: Annotated[str | None, Query(description="Only queries that read it.")] = None,
        cluster: Annotated[str | None, Query(description="Only queries of it.")] = None,
        superseded: Annotated[
            bool, Query(description="Include queries whose name belongs to another query now.")
        ] = False,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
        cursor: Annotated[
            str | None, Query(description="`next_cursor` of the page before.", pattern=CURSOR)
        ] = None,
    ) -> Response:
        """Sorted by name, then id. The partitions are in `GET /lag/{query}`. While a part of the
        service is `failing`, queries may be missing, and lags old."""
        listed = page(backend.view, Filter(status, topic, cluster, superseded), limit, cursor)
        response = _LagPage(
            queries=listed.queries,
            next_cursor=listed.next_cursor,
            failing=failing(backend, request),
            degraded=degraded(backend, request),
        )
        return Response(msgspec.json.encode(response), media_type=JSON)

    @app.get(
        "/lag/{query:name}",
        tags=["lag"],
        summary="One query's lag event",
        responses={200: {"content": {JSON: {"schema": ref("LagEvent")}}}, **QUERY_PROBLEMS},
    )
    async def get_lag(request: Request, query: str) -> Response:
        """By name, by id, or by the first characters of the id. The document is the newest event
        on `consumer-lag`, byte for byte."""
        return Response(find_query(backend, request, query).document, media_type=JSON)

    @app.get(
        "/lag/{query:name}/history",
        tags=["lag"],
        summary="One query's totals over time",
        response_class=Response,
        responses={200: {"content": {JSON: {"schema": ref("HistoryPage")}}}, **QUERY_PROBLEMS},
    )
    async def get_history(
        request: Request,
        query: str,
        since: Annotated[str | None, Query(description=f"{_TIME} Default: an hour.")] = None,
        until: Annotated[str | None, Query(description=f"{_TIME} Default: now.")] = None,
        step: Annotated[
            str | None,
            Query(description="Seconds, or a duration: `30s`, `5m`. Default: 300 steps in all."),
        ] = None,
    ) -> Response:
        """By name or by id, from memory. A step without a measurement has no point, and is not
        0."""
        entry = find_query(backend, request, query)
        now_ms = epoch_ms()
        try:
            wanted = time_range(since, until, step, now_ms)
        except ValueError as error:
            raise problems.invalid_parameter(str(error)) from error
        page = backend.history.page(entry, wanted, now_ms)
        return Response(msgspec.json.encode(page), media_type=JSON)

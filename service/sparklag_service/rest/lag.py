"""`/lag`: the newest events, totals over time, explanations, and forgetting a query."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from fastapi import FastAPI, Query, Request, Response
from msgspec import Raw, Struct
from pydantic import BeforeValidator

from sparklag_schemas import LagEvent, Status
from sparklag_schemas.presentation import sentences
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.history.page import time_range
from sparklag_service.rest import problems
from sparklag_service.rest.backend import Backend
from sparklag_service.rest.openapi import JSON, QUERY_PROBLEMS, REFUSED, ref, refused
from sparklag_service.rest.problems import Problem
from sparklag_service.rest.queries import CURSOR, MAX_PAGE, Filter, find_query, page, the_one
from sparklag_service.rest.request_rules import is_local
from sparklag_service.rest.system import degraded, failing
from sparklag_service.view.view import is_forgettable


def add_explanation(app: FastAPI, backend: Backend) -> None:
    """The route."""

    @app.get(
        "/lag/{query:name}/explanation",
        tags=["lag"],
        summary="One query's lag in sentences",
        response_class=Response,
        responses={200: {"content": {JSON: {"schema": ref("Explanation")}}}, **QUERY_PROBLEMS},
    )
    async def get_explanation(request: Request, query: str) -> Response:
        """By name or by id: what `sparklag lag` shows, for people. Programs read the event."""
        event = find_query(backend, request, query).event
        explanation = sentences.explanation(event, epoch_ms())
        return Response(msgspec.json.encode(explanation), media_type=JSON)


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


def add_forget(app: FastAPI, backend: Backend) -> None:
    """The route."""
    allowed_from = backend.settings.http_forget

    @app.delete(
        "/lag/{query:name}",
        tags=["lag"],
        summary="Forget a query that has no driver",
        status_code=204,
        response_class=Response,
        responses={
            403: refused("Not allowed from this address: see setting http_forget"),
            404: refused("No query has this id"),
            409: refused("It is live, or more than one id begins so, or this is a name"),
            422: REFUSED,
            503: refused(
                "Kafka does not answer, or the view is not complete and has no such query"
            ),
        },
    )
    async def forget(request: Request, query: str) -> Response:
        """By its id, or the first characters of that; not by name, which may mean another query by
        now. It leaves a tombstone on `consumer-lag`; every instance drops it. The offset store
        keeps its history."""
        if allowed_from != "anywhere" and (allowed_from == "off" or not is_local(request)):
            raise Problem(
                403,
                "forget-not-allowed",
                "Not allowed",
                f"setting http_forget is {allowed_from}: not from this address, or not by a proxy",
            )
        event = _find_by_id(backend, request, query)
        if not is_forgettable(event):
            raise Problem(
                409,
                "query-is-live",
                "The query is live",
                f"query {event.query_id} is {event.status}: its driver, checkpoint or group speaks,"
                " and it would be back at the next message",
            )
        if not await backend.forget(event):
            detail = f"the tombstone of query {event.query_id} is not acknowledged: try again"
            raise Problem(503, "kafka-away", "Kafka does not answer", detail)
        return Response(status_code=204)


def _find_by_id(backend: Backend, request: Request, wanted: str) -> LagEvent:
    """Raises Problem."""
    view = backend.view
    entry = view.get(wanted)
    if entry is not None:
        return entry.event
    if named := view.named(wanted):
        raise Problem(
            409,
            "id-needed",
            "Forgetting takes an id",
            f"{wanted!r} is a name, not an id",
            query_ids=[each.event.query_id for each in named],
        )
    return the_one(backend, request, view.with_prefix(wanted), wanted).event

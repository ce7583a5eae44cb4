"""`/lag` and `/stream`: newest events, totals over time, live streams, and forgetting a query."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final

import msgspec
from fastapi import FastAPI, Header, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import BeforeValidator

from sparklag_schemas import LagEvent, Status
from sparklag_schemas.presentation import sentences
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.access.principals import visible
from sparklag_service.history.page import time_range
from sparklag_service.live.hub import EventStream, TooManyReaders
from sparklag_service.live.reader import Selection
from sparklag_service.rest import problems
from sparklag_service.rest.authentication import audit, principal_of
from sparklag_service.rest.openapi import JSON, QUERY_PROBLEMS, REFUSED, json_of, refused
from sparklag_service.rest.problems import Problem
from sparklag_service.rest.queries import CURSOR, MAX_PAGE, Filter, find_query, page, the_one
from sparklag_service.rest.request_rules import is_local
from sparklag_service.rest.system import Backend, degraded, failing
from sparklag_service.view.view import is_forgettable

_TIME: Final = "Epoch milliseconds, ISO 8601, or a duration before now: `15m`, `24h`."


class _RouteByPath(APIRoute):
    """A route without parameters but those of its path, which FastAPI need not validate."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def handle(request: Request) -> Response:
            response: Response = await self.endpoint(request, **request.path_params)
            return response

        return handle


def add_lag(app: FastAPI, backend: Backend) -> None:
    @app.get(
        "/lag",
        tags=["lag"],
        summary="Every query's summary",
        responses=json_of("LagPage") | {422: REFUSED},
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
        view = visible(backend.view, principal_of(request))
        listed = page(view, Filter(status, topic, cluster, superseded), limit, cursor)
        parts = {"failing": failing(backend, request), "degraded": degraded(backend, request)}
        return Response(msgspec.json.encode(listed._asdict() | parts), media_type=JSON)

    async def get_lag(request: Request, query: str) -> Response:
        """The query is a name, an id, or the first characters of an id. The document is the newest
        event on `consumer-lag`, byte for byte; UNKNOWN if it was measured too late."""
        return Response(find_query(backend, request, query).document, media_type=JSON)

    app.router.add_api_route(
        "/lag/{query:name}",
        get_lag,
        route_class_override=_RouteByPath,
        tags=["lag"],
        summary="One query's lag event",
        responses=json_of("LagEvent") | QUERY_PROBLEMS,
    )

    @app.get(
        "/lag/{query:name}/history",
        tags=["lag"],
        summary="One query's totals over time",
        response_class=Response,
        responses=json_of("HistoryPage") | QUERY_PROBLEMS,
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
        """The query is a name or an id; the answer is from memory. A step without a measurement has
        no point, and is not 0."""
        entry = find_query(backend, request, query)
        now_ms = epoch_ms()
        try:
            wanted = time_range(since, until, step, now_ms)
        except ValueError as error:
            raise problems.invalid_parameter(str(error)) from error
        page = backend.history.page(entry, wanted, now_ms)
        return Response(msgspec.json.encode(page), media_type=JSON)

    @app.get(
        "/lag/{query:name}/explanation",
        tags=["lag"],
        summary="One query's lag in sentences",
        response_class=Response,
        responses=json_of("Explanation") | QUERY_PROBLEMS,
    )
    async def get_explanation(request: Request, query: str) -> Response:
        """The text that `sparklag lag` shows people, of a name or id. Programs read the event."""
        event = find_query(backend, request, query).event
        explanation = sentences.explanation(event, epoch_ms())
        return Response(msgspec.json.encode(explanation), media_type=JSON)


def add_forget(app: FastAPI, backend: Backend) -> None:
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
        """Takes an id, or the first characters of one; no name, which may mean another query by
        now. It leaves a tombstone on `consumer-lag`; every instance drops it. The offset store
        keeps its history."""
        principal = principal_of(request)
        may_forget = not principal.is_anonymous or is_local(request)
        if allowed_from == "off" or (allowed_from == "loopback" and not may_forget):
            raise Problem(
                "forget-not-allowed",
                f"setting http_forget is {allowed_from}: not from this address, or not by a proxy",
            )
        event = _find_by_id(backend, request, query)
        if not is_forgettable(event):
            raise Problem(
                "query-is-live",
                f"query {event.query_id} is {event.status}: its driver, checkpoint or group speaks,"
                " and it would be back at the next message",
            )
        if not await backend.forget(event):
            detail = f"the tombstone of query {event.query_id} is not acknowledged: try again"
            raise Problem("kafka-away", detail)
        audit(request, principal, f"query {event.query_id} ({event.query}) is forgotten")
        return Response(status_code=204)


def _find_by_id(backend: Backend, request: Request, wanted: str) -> LagEvent:
    view = visible(backend.view, principal_of(request))
    entry = view.get(wanted)
    if entry is not None:
        return entry.event
    if named := view.named(wanted):
        raise Problem(
            "id-needed",
            f"{wanted!r} is a name, not an id",
            query_ids=[entry.event.query_id for entry in named],
        )
    # The name of a group may begin with that of another, which is gone.
    begun = [entry for entry in view.with_prefix(wanted) if entry.event.origin != "group"]
    return the_one(backend, request, view, begun, wanted).event


_EVENTS: dict[str, Any] = {
    "description": "Server-Sent Events without an end",
    "content": {
        "text/event-stream": {
            "schema": {"type": "string"},
            "example": 'retry: 2000\n\nid: 3:1207\nevent: lag\ndata: {"query_id": "…", …}\n\n',
        }
    },
}
_TOO_MANY = refused("As many readers as `live.max_readers` allows read already")
_TOO_MANY_OR_NOT_READY = refused(f"{_TOO_MANY['description']}, or the query is not known yet")
LastId = Annotated[
    str | None,
    Header(
        alias="last-event-id",
        description="The last `id` that was read, of any instance: the stream goes on after it.",
    ),
]


def add_live(app: FastAPI, backend: Backend) -> None:
    app.add_exception_handler(TooManyReaders, _handle_full)

    @app.get(
        "/stream",
        tags=["live"],
        summary="Every query's lag events as they are published",
        response_class=Response,
        responses={200: _EVENTS, 422: REFUSED, 503: _TOO_MANY},
    )
    async def stream(
        request: Request,
        last_id: LastId = None,
        summary: Annotated[
            bool, Query(description="Summaries, as `GET /lag` lists them, in place of documents.")
        ] = False,
    ) -> Response:
        """First the newest event of every query, then each as it comes. `event: lag` carries the
        document of `GET /lag/{query}`; `event: forgotten`, the id of a query that left; `event:
        gap`, that missed events are gone: then the newest of what changed follows."""
        return EventStream(
            backend.live, Selection(principal_of(request), summaries=summary), last_id
        )

    @app.get(
        "/lag/{query:name}/stream",
        tags=["live"],
        summary="One query's lag events as they are published",
        response_class=Response,
        responses={200: _EVENTS, **QUERY_PROBLEMS, 503: _TOO_MANY_OR_NOT_READY},
    )
    async def stream_query(request: Request, query: str, last_id: LastId = None) -> Response:
        """The stream of one name or id, like `/stream`. It ends when the query is forgotten."""
        event = find_query(backend, request, query).event
        selection = Selection(principal_of(request), event.query_id)
        return EventStream(backend.live, selection, last_id)


async def _handle_full(request: Request, error: Exception) -> Response:
    problem = Problem(
        "too-many-readers",
        "the live stream of this instance has as many readers as live.max_readers allows:"
        " try another instance, or later",
    )
    return problems.problem_response(problem)

"""`GET /stream` and `GET /lag/{query}/stream`: lag events as they are published."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Header, Query, Request, Response

from sparklag_service.live.hub import EventStream, TooManyReaders
from sparklag_service.live.reader import Selection
from sparklag_service.rest import problems
from sparklag_service.rest.backend import Backend
from sparklag_service.rest.openapi import QUERY_PROBLEMS, REFUSED, refused
from sparklag_service.rest.queries import find_query

_EVENTS: dict[str, Any] = {
    "description": "Server-Sent Events without an end",
    "content": {
        "text/event-stream": {
            "schema": {"type": "string"},
            "example": 'retry: 2000\n\nid: 3:1207\nevent: lag\ndata: {"query_id": "…", …}\n\n',
        }
    },
}
_FULL = refused("As many readers as `live.max_readers` allows read already")
_FULL_OR_NOT_READY = refused(f"{_FULL['description']}, or the query is not known yet")
LastId = Annotated[
    str | None,
    Header(
        alias="last-event-id",
        description="The last `id` that was read, of any instance: the stream goes on after it.",
    ),
]


def add_live(app: FastAPI, backend: Backend) -> None:
    """Both routes."""
    app.add_exception_handler(TooManyReaders, _handle_full)

    @app.get(
        "/stream",
        tags=["live"],
        summary="Every query's lag events as they are published",
        response_class=Response,
        responses={200: _EVENTS, 422: REFUSED, 503: _FULL},
    )
    async def stream(
        last_id: LastId = None,
        summary: Annotated[
            bool, Query(description="Summaries, as `GET /lag` lists them, in place of documents.")
        ] = False,
    ) -> Response:
        """First the newest event of every query, then each as it comes. `event: lag` carries the
        document of `GET /lag/{query}`; `event: forgotten`, the id of a query that left; `event:
        gap`, that missed events are gone: then the newest of what changed follows."""
        return EventStream(backend.live, Selection(summaries=summary), last_id)

    @app.get(
        "/lag/{query:name}/stream",
        tags=["live"],
        summary="One query's lag events as they are published",
        response_class=Response,
        responses={200: _EVENTS, **QUERY_PROBLEMS, 503: _FULL_OR_NOT_READY},
    )
    async def stream_query(request: Request, query: str, last_id: LastId = None) -> Response:
        """By name or by id. As `/stream`; it ends when the query is forgotten."""
        event = find_query(backend, request, query).event
        return EventStream(backend.live, Selection(event.query_id), last_id)


async def _handle_full(request: Request, error: Exception) -> Response:
    problem = problems.Problem(
        503,
        "too-many-readers",
        "Too many readers",
        "the live stream of this instance has as many readers as live.max_readers allows:"
        " try another instance, or later",
    )
    return await problems.handle_problem(request, problem)

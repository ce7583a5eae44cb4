"""`GET /lag` and `GET /lag/{query}`: what stands now."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import FastAPI, Query, Response

from sparklag_schemas import Status
from sparklag_service.rest import problems
from sparklag_service.rest.backend import Backend
from sparklag_service.rest.listing import CURSOR, MAX_PAGE, Filter, page
from sparklag_service.rest.openapi import AMBIGUOUS, JSON, NO_SUCH_QUERY, REFUSED, ref


def add_lag(app: FastAPI, backend: Backend) -> None:
    """Both routes."""
    view = backend.view

    @app.get(
        "/lag",
        tags=["lag"],
        summary="Every query's summary",
        responses={200: {"content": {JSON: {"schema": ref("LagPage")}}}, 422: REFUSED},
    )
    async def list_lag(
        status: Annotated[Status | None, Query(description="Only queries in this state.")] = None,
        topic: Annotated[str | None, Query(description="Only queries that read it.")] = None,
        cluster: Annotated[str | None, Query(description="Only queries of it.")] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
        cursor: Annotated[
            str | None, Query(description="`next_cursor` of the page before.", pattern=CURSOR)
        ] = None,
    ) -> Response:
        """Sorted by name, then id. The partitions are in `GET /lag/{query}`."""
        events = (entry.event for entry in view)
        found = page(events, Filter(status, topic, cluster), limit, cursor)
        return Response(msgspec.json.encode(found), media_type=JSON)

    @app.get(
        "/lag/{query}",
        tags=["lag"],
        summary="One query's lag event",
        responses={
            200: {"content": {JSON: {"schema": ref("LagEvent")}}},
            404: NO_SUCH_QUERY,
            409: AMBIGUOUS,
            422: REFUSED,
        },
    )
    async def get_lag(query: str) -> Response:
        """By name or by id. The document is the newest one on `consumer-lag`, byte for byte."""
        return Response(problems.one_query(view, query).document, media_type=JSON)

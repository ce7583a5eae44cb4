"""`GET /lag/{query}/explanation`: a lag event as text for people."""

from __future__ import annotations

import msgspec
from fastapi import FastAPI, Request, Response

from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.rest.backend import Backend
from sparklag_service.rest.find_query import find_query
from sparklag_service.rest.openapi import JSON, QUERY_PROBLEMS, ref
from sparklag_service.view import lag_text


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
        explanation = lag_text.explanation(event, epoch_ms())
        return Response(msgspec.json.encode(explanation), media_type=JSON)

"""`GET /lag/{query}/history`: totals over time."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Query, Response

from sparklag_schemas.runtime.clock import epoch_ms
from sparklag_service.history.page import HistoryPage, InvalidParameter, time_range
from sparklag_service.rest import problems
from sparklag_service.rest.backend import Backend
from sparklag_service.rest.openapi import AMBIGUOUS, JSON, NO_SUCH_QUERY, REFUSED

_MOMENT = "Epoch milliseconds, ISO 8601, or a duration before now: `15m`, `24h`."


def add_history(app: FastAPI, backend: Backend) -> None:
    """The route."""

    @app.get(
        "/lag/{query}/history",
        tags=["lag"],
        summary="One query's totals over time",
        response_class=Response,
        responses={
            200: {"content": {JSON: {"schema": _schema()}}},
            404: NO_SUCH_QUERY,
            409: AMBIGUOUS,
            422: REFUSED,
        },
    )
    async def get_history(
        query: str,
        since: Annotated[str | None, Query(description=f"{_MOMENT} Default: an hour.")] = None,
        until: Annotated[str | None, Query(description=f"{_MOMENT} Default: now.")] = None,
        step: Annotated[
            str | None,
            Query(description="Seconds, or a duration: `30s`, `5m`. Default: 300 steps in all."),
        ] = None,
    ) -> Response:
        """By name or by id, from memory. A step without a measurement has no point: a gap is a
        gap, and not 0."""
        event = problems.one_query(backend.view, query).event
        now_ms = epoch_ms()
        try:
            wanted = time_range(since, until, step, now_ms)
        except InvalidParameter as error:
            raise problems.invalid_parameter(error.parameter, str(error)) from error
        page = backend.history.page(event, wanted, now_ms)
        return Response(msgspec.json.encode(page), media_type=JSON)


def _schema() -> dict[str, Any]:
    """Of the answer, whole: it is nobody else's."""
    _, components = msgspec.json.schema_components(
        [HistoryPage], ref_template="#/components/schemas/{name}"
    )
    points = dict(components["HistoryPage"])
    points["properties"] = dict(points["properties"])
    points["properties"]["points"] = {"type": "array", "items": components["HistoryPoint"]}
    return points

"""The REST interface. Everything is answered from memory: a request never touches Kafka."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Header, Query, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, StreamingResponse
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException

from sparklag_schemas import Status
from sparklag_schemas.clock import epoch_ms
from sparklag_schemas.documents import lag_event_components
from sparklag_service import problems
from sparklag_service.listing import MAX_PAGE, BadCursor, Filter, page
from sparklag_service.metrics.exposition import Exposition
from sparklag_service.page import rows
from sparklag_service.pipeline import Pipeline
from sparklag_service.rest_history import add_history
from sparklag_service.rest_live import add_live
from sparklag_service.version import VERSION

_JSON = "application/json"
_PROBLEM: dict[str, Any] = {
    "description": "Refused",
    "content": {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def create_app(pipeline: Pipeline) -> FastAPI:
    """The application that answers from `pipeline`'s view."""
    # Its files come from the wheel: many clusters have no way to a content network.
    app = FastAPIOffline(title="sparklag", version=VERSION, redoc_url=None)
    app.add_exception_handler(problems.Problem, problems.answer_problem)
    app.add_exception_handler(HTTPException, problems.answer_http_error)
    app.add_exception_handler(RequestValidationError, problems.answer_invalid)
    _add_lag(app, pipeline)
    add_history(app, pipeline)
    add_live(app, pipeline)
    _add_health(app, pipeline)
    _add_metrics(app, pipeline)
    _add_page(app, pipeline)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]  # FastAPI's own way
    return app


def _add_lag(app: FastAPI, pipeline: Pipeline) -> None:
    view = pipeline.view

    @app.get(
        "/lag",
        tags=["lag"],
        summary="Every query's summary",
        responses={200: {"content": {_JSON: {"schema": _ref("LagPage")}}}, 422: _PROBLEM},
    )
    async def list_lag(
        status: Annotated[Status | None, Query(description="Only queries in this state.")] = None,
        topic: Annotated[str | None, Query(description="Only queries that read it.")] = None,
        cluster: Annotated[str | None, Query(description="Only queries of it.")] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
        cursor: Annotated[
            str | None, Query(description="`next_cursor` of the page before.")
        ] = None,
    ) -> Response:
        """Sorted by name, then id. The partitions are in `GET /lag/{query}`."""
        events = (entry.event for entry in view)
        try:
            found = page(events, Filter(status, topic, cluster), limit, cursor)
        except BadCursor as error:
            raise problems.invalid_parameter("cursor", str(error)) from error
        return Response(msgspec.json.encode(found), media_type=_JSON)

    @app.get(
        "/lag/{query}",
        tags=["lag"],
        summary="One query's lag event",
        responses={
            200: {"content": {_JSON: {"schema": _ref("LagEvent")}}},
            404: _PROBLEM | {"description": "No query has this name or id"},
            409: _PROBLEM | {"description": "More than one query has this name"},
            422: _PROBLEM,
        },
    )
    async def get_lag(query: str) -> Response:
        """By name or by id. The document is the newest one on `consumer-lag`, byte for byte."""
        entries = view.find(query)
        if not entries:
            raise problems.unknown_query(query)
        if len(entries) > 1:
            raise problems.ambiguous_name(query, [entry.event.query_id for entry in entries])
        return Response(entries[0].document, media_type=_JSON)


def _add_health(app: FastAPI, pipeline: Pipeline) -> None:
    @app.get("/health/live", tags=["health"], summary="Whether the process answers")
    async def live() -> dict[str, str]:
        """200 as long as the loop runs."""
        return {"status": "live"}

    @app.get(
        "/health/ready",
        tags=["health"],
        summary="Whether its answers are complete",
        responses={503: {"description": "The parts that are not ready, each with its reason"}},
    )
    async def ready(response: Response) -> dict[str, Any]:
        """503 until the view is complete and Kafka answers. `degraded` names other clusters that
        cannot be reached, checkpoints and groups that cannot be read: only their queries suffer."""
        failing = pipeline.not_ready()
        response.status_code = 503 if failing else 200
        return {
            "status": "not ready" if failing else "ready",
            "failing": failing,
            "degraded": pipeline.degraded(),
            "queries": len(pipeline.view),
            "counters": pipeline.counters.as_dict(),
        }


def _add_metrics(app: FastAPI, pipeline: Pipeline) -> None:
    exposition = Exposition(pipeline)

    @app.get(
        "/metrics",
        tags=["health"],
        summary="Every query's lag, and what the service says of itself, for Prometheus",
        responses={200: {"content": {"text/plain": {}, "application/openmetrics-text": {}}}},
    )
    async def metrics(
        accept: Annotated[str, Header()] = "", accept_encoding: Annotated[str, Header()] = ""
    ) -> Response:
        """Prometheus text, or OpenMetrics to whoever accepts it; compressed likewise."""
        answer = await exposition.answer(accept, accept_encoding)
        return StreamingResponse(answer.stream(), headers=answer.headers)


def _add_page(app: FastAPI, pipeline: Pipeline) -> None:
    @app.get("/", include_in_schema=False)
    async def index() -> HTMLResponse:
        template = files("sparklag_service").joinpath("index.html").read_text(encoding="utf-8")
        found = rows((entry.event for entry in pipeline.view), epoch_ms())
        return HTMLResponse(template.replace("{rows}", found))


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(
            title="sparklag",
            version=VERSION,
            description="Consumer lag of Spark Structured Streaming queries.",
            routes=app.routes,
        )
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas.update(lag_event_components("#/components/schemas/{name}"))
        schemas["LagSummary"] = _summary_schema(schemas["LagEvent"])
        schemas["LagPage"] = {
            "type": "object",
            "required": ["queries", "next_cursor"],
            "properties": {
                "queries": {"type": "array", "items": _ref("LagSummary")},
                "next_cursor": {"type": ["string", "null"]},
            },
        }
        schemas["Problem"] = {
            "type": "object",
            "description": "RFC 9457. `type` names the problem and never changes.",
            "required": ["type", "title", "status", "detail"],
            "properties": {
                "type": {"type": "string"},
                "title": {"type": "string"},
                "status": {"type": "integer"},
                "detail": {"type": "string"},
                "query_ids": {"type": "array", "items": {"type": "string"}},
            },
        }
        app.openapi_schema = document
    return app.openapi_schema


def _summary_schema(event: dict[str, Any]) -> dict[str, Any]:
    topics = {
        "type": "array",
        "items": {"type": "string"},
        "description": "Names of the topics it reads.",
    }
    return {
        **event,
        "title": "LagSummary",
        "description": "A lag event without its partitions.",
        "properties": {**event["properties"], "topics": topics},
    }

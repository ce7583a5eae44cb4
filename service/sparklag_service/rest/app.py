"""The application, and the route of `/metrics`."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Header, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException

from sparklag_service import VERSION
from sparklag_service.metrics.exposition import Exposition
from sparklag_service.rest import problems
from sparklag_service.rest.backend import Backend
from sparklag_service.rest.lag import add_explanation, add_forget, add_lag
from sparklag_service.rest.live import add_live
from sparklag_service.rest.offsets import add_offsets
from sparklag_service.rest.openapi import document
from sparklag_service.rest.page import add_page
from sparklag_service.rest.request_rules import RequestRules
from sparklag_service.rest.system import add_health


def create_app(backend: Backend) -> FastAPI:
    """The application that answers from `backend`'s view."""
    # Its files come from the wheel: many clusters have no way to a content network.
    app = FastAPIOffline(
        title="sparklag",
        description="Consumer lag of Spark Structured Streaming queries.",
        version=VERSION,
        redoc_url=None,
    )
    # A redirect would lead to the Host of the request.
    app.router.redirect_slashes = False
    # Of the files of `/docs`: each client has a chunk in memory.
    FileResponse.chunk_size = 8 * 1024
    settings = backend.settings
    app.add_middleware(RequestRules, http_host=settings.http_host, http_hosts=settings.http_hosts)
    app.add_exception_handler(problems.Problem, problems.handle_problem)
    app.add_exception_handler(HTTPException, problems.handle_http_error)
    app.add_exception_handler(RequestValidationError, problems.handle_invalid)
    add_lag(app, backend)
    add_explanation(app, backend)
    add_forget(app, backend)
    add_live(app, backend)
    add_offsets(app, backend)
    add_health(app, backend)
    _add_metrics(app, backend)
    add_page(app)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]  # FastAPI's own way
    return app


def _add_metrics(app: FastAPI, backend: Backend) -> None:
    exposition = Exposition(backend)

    @app.get(
        "/metrics",
        tags=["health"],
        summary="Every query's lag, and the service's own metrics, for Prometheus",
        responses={200: {"content": {"text/plain": {}, "application/openmetrics-text": {}}}},
    )
    async def metrics(
        accept: Annotated[str, Header()] = "", accept_encoding: Annotated[str, Header()] = ""
    ) -> Response:
        """Prometheus text, or OpenMetrics where that is accepted; compressed likewise."""
        scrape = await exposition.render(accept, accept_encoding)
        return Response(scrape.body, headers=scrape.headers)

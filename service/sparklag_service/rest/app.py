"""The application, and the routes too small for a module of their own."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import FastAPI, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException

from sparklag_service import VERSION
from sparklag_service.metrics.exposition import Exposition
from sparklag_service.rest import problems
from sparklag_service.rest.backend import Backend
from sparklag_service.rest.explanation import add_explanation
from sparklag_service.rest.forget import add_forget
from sparklag_service.rest.lag import add_lag
from sparklag_service.rest.live import add_live
from sparklag_service.rest.offsets import add_offsets
from sparklag_service.rest.openapi import document
from sparklag_service.rest.page import add_page
from sparklag_service.rest.request_rules import RequestRules, is_local

_REMOTE: Final = "the reason is shown on the service's own machine, and in its log"


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
    _add_health(app, backend)
    _add_metrics(app, backend)
    add_page(app)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]  # FastAPI's own way
    return app


def _add_health(app: FastAPI, backend: Backend) -> None:
    @app.get("/health/live", tags=["health"], summary="Whether the process answers")
    async def live() -> dict[str, str]:
        """200 as long as the loop runs."""
        return {"status": "live"}

    @app.get(
        "/health/ready",
        tags=["health"],
        summary="Whether its responses are complete",
        responses={503: {"description": "The parts that are not ready, each with its reason"}},
    )
    async def ready(request: Request, response: Response) -> dict[str, Any]:
        """503 until the view is complete and Kafka answers. `degraded` names other clusters that
        cannot be reached, checkpoints and groups that cannot be read, groups that cannot be
        mirrored to: only their queries suffer. Addresses, paths and reasons are shown on this
        machine only; the log has them too."""
        failing, degraded = backend.not_ready(), backend.degraded()
        if not is_local(request):
            failing = dict.fromkeys(failing, _REMOTE)
            degraded = {f"{len(degraded)} parts": _REMOTE} if degraded else {}
        response.status_code = 503 if failing else 200
        return {
            "status": "not ready" if failing else "ready",
            "failing": failing,
            "degraded": degraded,
            "queries": len(backend.view),
            "counters": backend.counters.as_dict(),
        }


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
        return StreamingResponse(scrape.stream(), headers=scrape.headers)

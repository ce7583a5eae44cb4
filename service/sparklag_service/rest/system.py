"""`/health/live` and `/health/ready`, and what fails, as other responses have it too."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI, Request, Response

from sparklag_service import VERSION
from sparklag_service.rest.backend import Backend
from sparklag_service.rest.request_rules import is_local

_REMOTE: Final = "the reason is shown on the service's own machine, and in its log"


def add_health(app: FastAPI, backend: Backend) -> None:
    """Both routes."""

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
        cannot be reached, topics, checkpoints and groups that cannot be read, groups that cannot be
        mirrored to: only their queries suffer. Addresses, paths and reasons are shown on this
        machine only; the log has them too."""
        shown = failing(backend, request)
        response.status_code = 503 if shown else 200
        return {
            "status": "not ready" if shown else "ready",
            "failing": shown,
            "degraded": degraded(backend, request),
            "queries": len(backend.view),
            "version": VERSION,
            "counters": backend.counters.as_dict(),
        }


def failing(backend: Backend, request: Request) -> dict[str, str]:
    """The parts that are not ready, and why, as far as the sender of `request` may know."""
    reasons = backend.not_ready()
    return reasons if is_local(request) else dict.fromkeys(reasons, _REMOTE)


def degraded(backend: Backend, request: Request) -> dict[str, str]:
    """What fails without making the service unready, likewise."""
    reasons = backend.degraded()
    if not reasons or is_local(request):
        return reasons
    return {f"{len(reasons)} parts": _REMOTE}

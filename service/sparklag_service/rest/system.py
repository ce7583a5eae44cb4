"""`/health`, `/metrics` and the page; and `Backend`, the source of all responses."""

from __future__ import annotations

import gzip
import mimetypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape
from importlib.resources import files
from typing import Annotated, Any, Final, Protocol

from fastapi import FastAPI, Header, Request, Response
from fastapi.responses import HTMLResponse

from sparklag_schemas import LagEvent
from sparklag_service import VERSION
from sparklag_service.history.history import History
from sparklag_service.live.hub import LiveHub
from sparklag_service.metrics.exposition import Exposition
from sparklag_service.rest.authentication import is_by_cookie, principal_of
from sparklag_service.rest.problems import Problem
from sparklag_service.rest.request_rules import is_local
from sparklag_service.view.service_state import ServiceState

_HIDDEN: Final = (
    "the service's log has the reason; REST shows it on its own machine, or with a token for every"
    " query"
)
AcceptEncoding = Annotated[str, Header()]


class Backend(ServiceState, Protocol):
    """The service's state, and the parts that only REST reads."""

    @property
    def live(self) -> LiveHub:
        """The live streams."""

    @property
    def history(self) -> History:
        """Totals over time."""

    async def forget(self, event: LagEvent) -> bool:
        """Forget a query that no source reports. False: its tombstone is not acknowledged."""


def add_health(app: FastAPI, backend: Backend) -> None:
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
        machine only, or with a token for every query; the log has them too. Where a token is
        needed, a request without one gets `status` and `failing` alone."""
        shown = failing(backend, request)
        response.status_code = 503 if shown else 200
        answer = {"status": "not ready" if shown else "ready", "failing": shown}
        if not principal_of(request).sees_all:
            return answer
        return answer | {
            "degraded": degraded(backend, request),
            "queries": len(backend.view),
            "version": VERSION,
            "instance": backend.settings.instance_name,
            "counters": backend.counters.as_dict(),
        }


def failing(backend: Backend, request: Request) -> dict[str, str]:
    """The parts that are not ready, with the reasons that the sender of `request` may read."""
    reasons = backend.not_ready()
    return reasons if _reads_reasons(backend, request) else dict.fromkeys(reasons, _HIDDEN)


def degraded(backend: Backend, request: Request) -> dict[str, str]:
    """Failures without effect on readiness, with the reasons that the sender may read."""
    reasons = backend.degraded()
    if not reasons or _reads_reasons(backend, request):
        return reasons
    return {f"{len(reasons)} parts": _HIDDEN} if principal_of(request).sees_all else {}


def _reads_reasons(backend: Backend, request: Request) -> bool:
    """Reasons have addresses, paths, and names of queries."""
    if not backend.settings.needs_token:
        return is_local(request)
    return principal_of(request).sees_all


def add_metrics(app: FastAPI, backend: Backend) -> None:
    exposition = Exposition(backend)

    @app.get(
        "/metrics",
        tags=["health"],
        summary="Every query's lag, and the service's own metrics, for Prometheus",
        responses={200: {"content": {"text/plain": {}, "application/openmetrics-text": {}}}},
    )
    async def metrics(
        request: Request,
        accept: Annotated[str, Header()] = "",
        accept_encoding: AcceptEncoding = "",
    ) -> Response:
        """Prometheus text, or OpenMetrics where that is accepted; compressed likewise. A token for
        some queries gets their series alone, without the service's own metrics."""
        scrape = await exposition.render(accept, accept_encoding, principal_of(request))
        return Response(scrape.body, headers=scrape.headers)


_BASE: Final = '<base href="./">'
_FOREVER: Final = "public, max-age=31536000, immutable"
"""For assets: their names contain a digest of the content."""
_SHORT: Final = "no-cache"


@dataclass(frozen=True)
class _File:
    body: bytes
    media_type: str
    cache_control: str

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.body, mtime=0)

    def response(self, accept_encoding: str) -> Response:
        headers = {"cache-control": self.cache_control, "vary": "accept-encoding"}
        if "gzip" not in accept_encoding:
            return Response(self.body, media_type=self.media_type, headers=headers)
        headers["content-encoding"] = "gzip"
        return Response(self.compressed, media_type=self.media_type, headers=headers)


def with_base(html: str, path: str) -> str:
    """The page at that path. Its addresses are relative to the path of `/`: the service may be
    behind a proxy with an unknown path."""
    base = "../" * (path.count("/") - 1) or "./"
    return html.replace(_BASE, f'<base href="{base}">')


def add_page(app: FastAPI, backend: Backend) -> None:
    """Add the page, built from `web/` into `static/`, at each of its addresses.

    The page is one application that requests the other routes.
    """
    built = dict(_built_files())

    @app.get("/", include_in_schema=False)
    @app.get("/q/{query:name}", include_in_schema=False)
    @app.get("/t/{query:name}", include_in_schema=False)
    @app.get("/topics", include_in_schema=False)
    @app.get("/service", include_in_schema=False)
    async def page(request: Request) -> Response:
        if "index.html" not in built:
            raise Problem(
                "page-not-built",
                "this installation has no page: `pip install` of a wheel has; of a checkout it"
                " builds it",
            )
        principal, metas = principal_of(request), {"version": VERSION}
        if backend.settings.grafana_url is not None:
            metas["grafana"] = backend.settings.grafana_url
        if is_by_cookie(request) and not principal.is_anonymous:
            metas["principal"] = principal.name
        tags = (f'<meta name="sparklag-{k}" content="{escape(v)}">' for k, v in metas.items())
        html = built["index.html"].body.decode().replace(_BASE, "".join((_BASE, *tags)))
        return HTMLResponse(with_base(html, request.scope["path"]))

    @app.get("/assets/{name}", include_in_schema=False)
    @app.get("/icon.svg", include_in_schema=False)
    async def file(request: Request, accept_encoding: AcceptEncoding = "") -> Response:
        name = request.scope["path"].removeprefix("/")
        if name not in built:
            raise Problem("not-found", f"the page has no file {name}")
        return built[name].response(accept_encoding)


def _built_files() -> Iterator[tuple[str, _File]]:
    folder = files("sparklag_service.rest") / "static"
    if not folder.is_dir():
        return
    for path, cache_control in (("", _SHORT), ("assets/", _FOREVER)):
        for item in (folder / path if path else folder).iterdir():
            if item.is_file():
                media_type = mimetypes.guess_type(item.name)[0] or "application/octet-stream"
                yield path + item.name, _File(item.read_bytes(), media_type, cache_control)

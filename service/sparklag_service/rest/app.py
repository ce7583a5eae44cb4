"""The application: its routes, rules and errors."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.middleware.authentication import AuthenticationMiddleware

from sparklag_service import VERSION
from sparklag_service.access.jwt import JwtVerifier
from sparklag_service.access.token_file import TokenFile
from sparklag_service.rest import problems
from sparklag_service.rest.authentication import Authentication, Authenticator
from sparklag_service.rest.lag import add_forget, add_lag, add_live
from sparklag_service.rest.login import add_login, refuse_or_ask
from sparklag_service.rest.offsets import add_offsets
from sparklag_service.rest.openapi import document
from sparklag_service.rest.request_rules import RequestRules
from sparklag_service.rest.system import Backend, add_health, add_metrics, add_page


def create_app(backend: Backend) -> FastAPI:
    # The files of `/docs` come from the wheel: many clusters cannot reach a content network.
    app = FastAPIOffline(
        title="sparklag",
        description="Consumer lag of Spark Structured Streaming queries.",
        version=VERSION,
        redoc_url=None,
    )
    # A redirect would use the Host header of the request.
    app.router.redirect_slashes = False
    # For the files of `/docs`: each client has a chunk in memory.
    FileResponse.chunk_size = 8 * 1024
    settings = backend.settings
    app.state.authenticators = authenticators = list[Authenticator]()
    if settings.http_tokens.file is not None:
        authenticators.append(TokenFile(settings.http_tokens.file))
    if settings.http_jwt.issuer is not None:
        authenticators.append(JwtVerifier(settings.http_jwt))
    app.add_middleware(
        AuthenticationMiddleware,
        backend=Authentication(settings, authenticators),
        on_error=refuse_or_ask,
    )
    app.add_middleware(
        RequestRules,
        http_host=settings.http_host,
        http_hosts=settings.http_hosts,
        monitoring_port=settings.http_monitoring_port,
        is_logged=settings.http_access_log,
    )
    app.add_exception_handler(problems.Problem, problems.handle_problem)
    app.add_exception_handler(HTTPException, problems.handle_http_error)
    app.add_exception_handler(RequestValidationError, problems.handle_invalid)
    add_lag(app, backend)
    add_forget(app, backend)
    add_live(app, backend)
    add_offsets(app, backend)
    add_health(app, backend)
    add_metrics(app, backend)
    add_page(app, backend)
    if settings.needs_token:
        add_login(app)
    app.openapi = lambda: document(app, needs_token=settings.needs_token)  # type: ignore[method-assign]  # FastAPI's own way
    return app

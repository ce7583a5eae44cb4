"""Who sent a request, and whether it may: the backend of Starlette's AuthenticationMiddleware."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol

from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError
from starlette.requests import HTTPConnection
from starlette.responses import Response

from sparklag_schemas import Settings
from sparklag_schemas.runtime.logs import AUDIT
from sparklag_schemas.settings import Scope
from sparklag_schemas.text.printable import printable
from sparklag_service.access.jwt import RETRY_S, IssuerAway
from sparklag_service.access.principals import ANYONE, NOBODY, Principal
from sparklag_service.rest.problems import Problem, problem_response

_log = logging.getLogger(__name__)
_audit_log = logging.getLogger(AUDIT)
COOKIE: Final = "sparklag_token"
_MAX_CREDENTIAL: Final = 8 * 1024
_BURST_S: Final = 10.0
_CLIENTS: Final = 10_000
"""Clients whose requests are counted: there are many addresses, and subjects of JWTs."""
_REFUSED_SHARE: Final = 0.1
_SCOPES: Final = AuthCredentials()
"""Starlette's own; `needed_scope` is checked here, whatever the route."""


class Authenticator(Protocol):
    """Knows the holders of one kind of credential."""

    async def authenticate(self, credential: str) -> Principal | None:
        """The holder; None where the credential is unknown, expired, or of another kind."""


def principal_of(request: HTTPConnection) -> Principal:
    """The sender of a request."""
    principal: Principal = request.scope["user"]
    return principal


def needed_scope(method: str, path: str) -> Scope | None:
    """The scope of a route. None: it is open."""
    if path.startswith("/health/"):
        return None
    if method == "DELETE":
        return "admin"
    # The router's patterns let one line break follow.
    if path.removesuffix("\n") == "/metrics":
        return "metrics"
    return "offsets" if path.startswith("/offsets/") else "lag"


class RateLimit:
    """Limits the requests of each client (generic cell rate algorithm)."""

    def __init__(self, per_s: float) -> None:
        self._interval_s = 1 / per_s
        self._burst_s = max(_BURST_S, self._interval_s)
        self._full_at_s: OrderedDict[str, float] = OrderedDict()
        """When the client's requests so far are spread over the allowed rate."""

    def wait_s(self, client: str) -> float:
        """Count a request: returns 0, or the seconds until the next is allowed."""
        now_s = time.monotonic()
        next_s = max(self._full_at_s.pop(client, now_s), now_s) + self._interval_s
        wait_s = next_s - now_s - self._burst_s
        self._full_at_s[client] = next_s if wait_s <= 0 else next_s - self._interval_s
        if len(self._full_at_s) > _CLIENTS:
            self._full_at_s.popitem(last=False)
        return max(wait_s, 0.0)


class Refused(AuthenticationError):
    """A request that is refused with that problem. `reason`: for the audit log alone."""

    def __init__(self, problem: Problem, reason: str, principal: Principal = NOBODY) -> None:
        super().__init__(reason)
        self.problem = problem
        self.principal = principal


class Authentication(AuthenticationBackend):
    """Admits requests by their token."""

    def __init__(self, settings: Settings, authenticators: Sequence[Authenticator]) -> None:
        self._needs_token = settings.needs_token
        self._authenticators = authenticators
        self._requests = RateLimit(settings.http_tokens.requests_per_s)
        self._refusals = RateLimit(settings.http_tokens.requests_per_s * _REFUSED_SHARE)

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, Principal]:  # type: ignore[override]  # Starlette's user has other names
        """Raises Refused."""
        if not self._needs_token:
            return _SCOPES, ANYONE
        scope = needed_scope(conn.scope["method"], conn.scope["path"])
        credential, principal = credential_of(conn), None
        try:
            for authenticator in self._authenticators if credential else ():
                if (principal := await authenticator.authenticate(credential)) is not None:
                    break
        except IssuerAway as error:
            if scope is not None:
                problem = Problem("issuer-away", str(error), retry_after_s=RETRY_S)
                raise Refused(problem, str(error)) from error
        if scope is None:
            return _SCOPES, principal or NOBODY
        if principal is None:
            if (wait_s := self._refusals.wait_s(_address(conn))) > 0:
                raise _too_many(wait_s, NOBODY)
            problem = Problem(
                "no-valid-token", "this needs a valid token, as Authorization: Bearer"
            )
            problem.headers["WWW-Authenticate"] = "Bearer"
            raise Refused(problem, "no token" if not credential else "no valid token")
        if (wait_s := self._requests.wait_s(principal.name)) > 0:
            raise _too_many(wait_s, principal)
        if scope not in principal.scopes:
            problem = Problem("scope-missing", f"this needs a token with scope {scope}")
            raise Refused(problem, f"no scope {scope}", principal)
        # A proxy with single sign-on adds the header to requests of a browser.
        if conn.scope["method"] != "GET" and (
            is_by_cookie(conn) or "sec-fetch-site" in conn.headers
        ):
            _require_same_origin(conn, principal)
        return _SCOPES, principal.within(scope)


def refuse(conn: HTTPConnection, error: Exception) -> Response:
    """The response to a request that Authentication refused, with a line for the audit."""
    assert isinstance(error, Refused)
    conn.scope["user"] = error.principal
    # A flood is not audited.
    log = _audit_log if error.problem.document.status in (401, 403) else _log
    _write(log, conn, error.principal, f"refused, {error}")
    return problem_response(error.problem)


def audit(conn: HTTPConnection, principal: Principal, outcome: str) -> None:
    """Log what a principal has changed."""
    _write(_audit_log, conn, principal, outcome)


def _write(log: logging.Logger, conn: HTTPConnection, principal: Principal, outcome: str) -> None:
    request = f"{conn.scope['method']} {printable(conn.scope['path'], 200)}"
    name = printable(principal.name, 200)
    log.warning("%s by %s from %s: %s", request, name, _address(conn), printable(outcome, 300))


def is_by_cookie(conn: HTTPConnection) -> bool:
    """True: the cookie is the credential of a request, if it has any."""
    return not conn.headers.get("authorization")


def credential_of(conn: HTTPConnection) -> str:
    """The token of a request; may be empty, and is not verified."""
    header = conn.headers.get("authorization", "")
    kind, _, credential = header.partition(" ")
    if not header:
        # The first of several is of the longest path: another service may be above this one.
        pairs = (pair.strip().partition("=") for pair in conn.headers.get("cookie", "").split(";"))
        credential = next((value for name, _, value in pairs if name == COOKIE), "")
    elif kind.lower() != "bearer":
        return ""
    credential = credential.strip()
    return credential if credential.isascii() and len(credential) <= _MAX_CREDENTIAL else ""


def _require_same_origin(conn: HTTPConnection, principal: Principal) -> None:
    """A browser sends the cookie with requests of foreign pages too. Raises Refused."""
    # A proxy may change Host. Browsers send Sec-Fetch-Site over TLS and to this machine.
    site = conn.headers.get("sec-fetch-site")
    origin = conn.headers.get("origin", "").partition("://")[2]
    if site != "same-origin" if site else not origin or origin != conn.headers.get("host"):
        problem = Problem("foreign-origin", "a page of another origin sent this request")
        raise Refused(problem, "sent by a page of another origin", principal)


def _too_many(wait_s: float, principal: Principal) -> Refused:
    problem = Problem(
        "too-many-requests",
        "more requests than http_tokens.requests_per_s",
        retry_after_s=int(wait_s) + 1,
    )
    return Refused(problem, "too many requests", principal)


def _address(conn: HTTPConnection) -> str:
    return conn.client.host if conn.client is not None else "an unknown address"

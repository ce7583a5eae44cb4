"""The login of the page: a form in its place, and a cookie with the token. No instance keeps a
session: the cookie is valid on each, as long as the token."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from importlib.resources import files
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from starlette.requests import HTTPConnection

from sparklag_service.rest.authentication import COOKIE, credential_of, refuse
from sparklag_service.rest.system import with_base

_HTML: Final = (files("sparklag_service.rest") / "login.html").read_text("utf-8")


def _hash(tag: str) -> str:
    content = _HTML.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
    return f"'sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


_POLICY: Final = (
    f"default-src 'none'; script-src {_hash('script')}; style-src {_hash('style')};"
    " img-src data:; connect-src 'self'; base-uri 'self'; form-action 'none';"
    " frame-ancestors 'none'; require-trusted-types-for 'script'"
)


def refuse_or_ask(conn: HTTPConnection, error: Exception) -> Response:
    """`refuse`; a browser that navigates without a valid token gets the form."""
    refused = refuse(conn, error)
    is_page = conn.scope["method"] == "GET" and "text/html" in conn.headers.get("accept", "")
    if refused.status_code != 401 or not is_page:
        return refused
    form = HTMLResponse(with_base(_HTML, conn.scope["path"]), refused.status_code)
    form.headers["www-authenticate"] = refused.headers["www-authenticate"]
    form.headers["content-security-policy"] = _POLICY
    return form


def add_login(app: FastAPI) -> None:
    """Add `POST /login`, which puts the token of its header into the cookie, and `POST /logout`."""

    @app.post("/login", include_in_schema=False)
    @app.post("/logout", include_in_schema=False)
    async def set_cookie(request: Request) -> Response:
        token = credential_of(request) if request.scope["path"] == "/login" else ""
        response = Response(status_code=204)
        # Without a path, browsers take the folder of the route, also below a proxy's path. The
        # default is SameSite=Lax: with Strict, a link from another site would show the form.
        is_https = request.headers.get("origin", "").startswith("https:")
        max_age = None if token else 0
        response.set_cookie(COOKIE, token, max_age, path=None, secure=is_https, httponly=True)
        return response

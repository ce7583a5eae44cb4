"""A schema registry with rights: Apicurio itself has users only with an identity server."""

from __future__ import annotations

import ssl
from typing import Final

import httpx
from werkzeug import Request, Response

from tests.http_server import HttpServer, raw_path

USER: Final = "reader"
PASSWORD: Final = "s3cret: of tests"
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"


def registry_proxy(
    registry_url: str, *, guarded: bool = False, tls: ssl.SSLContext | None = None
) -> HttpServer:
    def respond(request: Request) -> Response:
        user = request.authorization
        # To look a schema up is a POST too.
        changes = request.method == "PUT" or request.path.endswith("/versions")
        if guarded and (user is None or (user.username, user.password) != (USER, PASSWORD)):
            status, body = 401, b'{"error_code": 40101, "message": "who are you"}'
        elif guarded and changes:
            status, body = 403, b'{"error_code": 40301, "message": "you may only read"}'
        else:
            answer = httpx.request(
                request.method,
                registry_url + raw_path(request),
                content=request.data,
                headers={"content-type": _CONTENT_TYPE},
                timeout=30,
            )
            status, body = answer.status_code, answer.content
        return Response(body, status, content_type=_CONTENT_TYPE)

    return HttpServer(respond, tls=tls)

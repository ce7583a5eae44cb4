"""RFC 9457 problem documents, and names as segments of paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import msgspec
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import Scope

from sparklag_schemas.rest_interface import path_segment


def path_by_segments(scope: Scope) -> str:
    """The path of a request with the slashes that are part of a name still encoded: the server has
    decoded them in `scope["path"]`, where they look like those between segments."""
    raw_path: bytes | None = scope.get("raw_path")
    if raw_path is None or b"%" not in raw_path:
        return str(scope["path"])
    segments = raw_path.decode("ascii", "replace").split("/")
    return "/".join(unquote(each).replace("%", "%25").replace("/", "%2F") for each in segments)


class _NameConvertor(Convertor[str]):
    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return path_segment(value)


register_url_convertor("name", _NameConvertor())
MEDIA_TYPE = "application/problem+json"
_TYPE_PREFIX = "tag:sparklag,2026:problem/"


class ProblemDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """The problem document of RFC 9457. `type` names the problem and never changes."""

    type: str
    title: str
    status: int
    detail: str
    query_ids: Sequence[str] = ()
    failing: Mapping[str, str] = {}


class Problem(Exception):
    """A refused request. `kind` names it for programs and never changes."""

    def __init__(
        self,
        status: int,
        kind: str,
        title: str,
        detail: str,
        query_ids: Sequence[str] = (),
        *,
        failing: Mapping[str, str] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        """`failing`: parts of the service, and why."""
        super().__init__(detail)
        self.document = ProblemDocument(
            _TYPE_PREFIX + kind, title, status, detail, query_ids, failing or {}
        )
        self.headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}


async def handle_problem(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return problem_response(problem)


async def handle_http_error(request: Request, error: Exception) -> Response:
    """Exception handler for what the router refuses: unknown paths, wrong methods."""
    assert isinstance(error, HTTPException)
    kind = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "http-error")
    problem = Problem(error.status_code, kind, str(error.detail), request.url.path)
    if error.status_code == 405 and (allowed := _allowed(request)):
        problem.headers["Allow"] = allowed
    return problem_response(problem)


async def handle_invalid(request: Request, error: Exception) -> Response:
    """Exception handler for parameters of the wrong type or value."""
    assert isinstance(error, RequestValidationError)
    faults = [f"{fault['loc'][-1]}: {fault['msg']}" for fault in error.errors()]
    return problem_response(invalid_parameter("; ".join(faults)))


def invalid_parameter(detail: str) -> Problem:
    """The problem of a parameter, which the text names."""
    return Problem(422, "invalid-parameter", "Invalid parameter", detail)


def problem_response(problem: Problem) -> Response:
    body, status = msgspec.json.encode(problem.document), problem.document.status
    return Response(body, status, problem.headers, media_type=MEDIA_TYPE)


def _allowed(request: Request) -> str:
    methods: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods))

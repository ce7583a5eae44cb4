"""RFC 9457 problem documents, and query names as path segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
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
    """The path of a request in which slashes inside a name are still encoded. The server has
    decoded them in `scope["path"]`, where they look like separators."""
    raw_path: bytes | None = scope.get("raw_path")
    if raw_path is None or b"%" not in raw_path:
        return str(scope["path"])
    segments = raw_path.decode("ascii", "replace").split("/")
    return "/".join(unquote(s).replace("%", "%25").replace("/", "%2F") for s in segments)


class _NameConvertor(Convertor[str]):
    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return path_segment(value)


register_url_convertor("name", _NameConvertor())
MEDIA_TYPE = "application/problem+json"
_TYPE_PREFIX = "tag:sparklag,2026:problem/"
_KINDS: Final[Mapping[str, tuple[int, str]]] = {
    "no-valid-token": (401, "No valid token"),
    "foreign-origin": (403, "Not allowed"),
    "forget-not-allowed": (403, "Not allowed"),
    "scope-missing": (403, "Not allowed"),
    "before-first-batch": (404, "Nothing is stored from before that time"),
    "no-offset-store": (404, "No offset store"),
    "not-found": (404, "Not found"),
    "unknown-query": (404, "Unknown query"),
    "ambiguous-query-name": (409, "More than one query has this name"),
    "id-needed": (409, "Forgetting takes an id"),
    "not-restorable": (409, "The query cannot be restored"),
    "position-deleted": (409, "Retention has deleted what comes next"),
    "query-is-live": (409, "The query is live"),
    "source-not-named": (409, "The query has several sources"),
    "topic-changed": (409, "The topic is gone, or another one"),
    "body-too-large": (413, "Body too large"),
    "unknown-host": (421, "Unknown host"),
    "invalid-parameter": (422, "Invalid parameter"),
    "too-many-requests": (429, "Too many requests"),
    "issuer-away": (503, "The issuer of tokens does not answer"),
    "kafka-away": (503, "Kafka does not answer"),
    "not-ready": (503, "The service is not ready"),
    "offset-store-away": (503, "The offset store does not answer"),
    "page-not-built": (503, "The page was not built"),
    "too-many-readers": (503, "Too many readers"),
}
"""Status and title of each kind."""


class ProblemDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """The problem document of RFC 9457. `type` names the problem and never changes."""

    type: str
    title: str
    status: int
    detail: str
    query_ids: Sequence[str] = ()
    alike: Sequence[str] = ()
    failing: Mapping[str, str] = {}


class Problem(Exception):
    """A refused request. `kind` names it for programs and never changes."""

    def __init__(
        self,
        kind: str,
        detail: str,
        query_ids: Sequence[str] = (),
        *,
        alike: Sequence[str] = (),
        failing: Mapping[str, str] | None = None,
        retry_after_s: int | None = None,
        status: int = 0,
        title: str = "",
    ) -> None:
        """`alike`: names of queries. `failing`: parts of the service with reasons. `status`,
        `title`: override the kind's."""
        super().__init__(detail)
        status_of_kind, title_of_kind = _KINDS.get(kind, (0, ""))
        self.document = ProblemDocument(
            _TYPE_PREFIX + kind,
            title or title_of_kind,
            status or status_of_kind,
            detail,
            query_ids,
            alike or (),
            failing or {},
        )
        self.headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}


async def handle_problem(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return problem_response(problem)


async def handle_http_error(request: Request, error: Exception) -> Response:
    """Exception handler for errors of the router: unknown paths, wrong methods."""
    assert isinstance(error, HTTPException)
    kind = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "http-error")
    title, status = str(error.detail), error.status_code
    problem = Problem(kind, request.url.path, status=status, title=title)
    if error.status_code == 405 and (allowed := _allowed(request)):
        problem.headers["Allow"] = allowed
    return problem_response(problem)


async def handle_invalid(request: Request, error: Exception) -> Response:
    """Exception handler for parameters of the wrong type or value."""
    assert isinstance(error, RequestValidationError)
    faults = [f"{fault['loc'][-1]}: {fault['msg']}" for fault in error.errors()]
    return problem_response(invalid_parameter("; ".join(faults)))


def invalid_parameter(detail: str) -> Problem:
    """The problem of an invalid parameter; `detail` names the parameter."""
    return Problem("invalid-parameter", detail)


def problem_response(problem: Problem) -> Response:
    body, status = msgspec.json.encode(problem.document), problem.document.status
    return Response(body, status, problem.headers, media_type=MEDIA_TYPE)


def _allowed(request: Request) -> str:
    methods: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods))

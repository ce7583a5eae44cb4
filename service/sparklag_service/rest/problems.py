"""Errors of the REST interface, as RFC 9457 problem documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from sparklag_service.view.view import Entry, View

MEDIA_TYPE = "application/problem+json"
_TYPE_PREFIX = "tag:sparklag,2026:problem/"


class ProblemDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """RFC 9457. `type` names the problem and never changes."""

    type: str
    title: str
    status: int
    detail: str
    query_ids: Sequence[str] = ()


class Problem(Exception):
    """A refused request. `kind` names it for programs and never changes."""

    def __init__(
        self, status: int, kind: str, title: str, detail: str, query_ids: Sequence[str] = ()
    ) -> None:
        super().__init__(detail)
        self.document = ProblemDocument(_TYPE_PREFIX + kind, title, status, detail, query_ids)


def find_query(view: View, wanted: str) -> Entry:
    """The newest event of a query, by its name, its id or the beginning of that. Raises Problem."""
    return the_one(view.find(wanted), wanted)


def the_one(entries: Sequence[Entry], wanted: str) -> Entry:
    """The only one. Raises Problem."""
    if len(entries) == 1:
        return entries[0]
    if not entries:
        detail = f"no query has the name or id {wanted!r}; GET /lag lists all queries"
        raise Problem(404, "unknown-query", "Unknown query", detail)
    have = "live queries have the name" if entries[0].event.query == wanted else "ids begin with"
    raise Problem(
        409,
        "ambiguous-query-name",
        "More than one query has this name",
        f"{len(entries)} {have} {wanted!r}: request one of them by its id",
        query_ids=[entry.event.query_id for entry in entries],
    )


async def handle_problem(request: Request, problem: Exception) -> Response:
    """Exception handler for Problem."""
    assert isinstance(problem, Problem)
    return problem_response(problem)


async def handle_http_error(request: Request, error: Exception) -> Response:
    """Exception handler for what the router refuses: unknown paths, wrong methods."""
    assert isinstance(error, HTTPException)
    kind = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "http-error")
    problem = Problem(error.status_code, kind, str(error.detail), request.url.path)
    allowed = _allowed(request) if error.status_code == 405 else ""
    return problem_response(problem, {"Allow": allowed} if allowed else None)


async def handle_invalid(request: Request, error: Exception) -> Response:
    """Exception handler for parameters of the wrong type or value."""
    assert isinstance(error, RequestValidationError)
    faults = [f"{fault['loc'][-1]}: {fault['msg']}" for fault in error.errors()]
    return problem_response(invalid_parameter("; ".join(faults)))


def invalid_parameter(detail: str) -> Problem:
    """422. The text names the parameter."""
    return Problem(422, "invalid-parameter", "Invalid parameter", detail)


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """Its document."""
    body, status = msgspec.json.encode(problem.document), problem.document.status
    return Response(body, status, headers, media_type=MEDIA_TYPE)


def _allowed(request: Request) -> str:
    """The methods that a path takes, of all its routes; HEAD with GET."""
    methods: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods))

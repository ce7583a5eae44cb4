"""Errors of the REST interface, as RFC 9457 problem documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from sparklag_service.view.view import Entry, View

MEDIA_TYPE = "application/problem+json"
_TYPE_PREFIX = "tag:sparklag,2026:problem/"


class Problem(Exception):
    """A refused request. `kind` names it for programs and never changes."""

    def __init__(self, status: int, kind: str, title: str, detail: str, **members: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.document = {
            "type": _TYPE_PREFIX + kind,
            "title": title,
            "status": status,
            "detail": detail,
            **members,
        }


def unknown_query(name: str) -> Problem:
    """404."""
    return Problem(
        404,
        "unknown-query",
        "Unknown query",
        f"no query has the name or id {name!r}; GET /lag lists all queries",
    )


def ambiguous_name(name: str, query_ids: list[str]) -> Problem:
    """409."""
    return Problem(
        409,
        "ambiguous-query-name",
        "More than one query has this name",
        f"{len(query_ids)} queries have the name {name!r}: request one of them by its id",
        query_ids=query_ids,
    )


def find_query(view: View, name_or_id: str) -> Entry:
    """The newest event of a query. Raises Problem."""
    entries = view.find(name_or_id)
    if not entries:
        raise unknown_query(name_or_id)
    if len(entries) > 1:
        raise ambiguous_name(name_or_id, [entry.event.query_id for entry in entries])
    return entries[0]


async def handle_problem(request: Request, problem: Exception) -> JSONResponse:
    """Exception handler for Problem."""
    assert isinstance(problem, Problem)
    return problem_response(problem)


async def handle_http_error(request: Request, error: Exception) -> JSONResponse:
    """Exception handler for what the router refuses: unknown paths, wrong methods."""
    assert isinstance(error, HTTPException)
    kind = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "http-error")
    problem = Problem(error.status_code, kind, str(error.detail), request.url.path)
    return problem_response(problem, _allowed(error.headers))


async def handle_invalid(request: Request, error: Exception) -> JSONResponse:
    """Exception handler for parameters of the wrong type or value."""
    assert isinstance(error, RequestValidationError)
    faults = [f"{fault['loc'][-1]}: {fault['msg']}" for fault in error.errors()]
    return problem_response(_invalid("; ".join(faults)))


def invalid_parameter(name: str, detail: str) -> Problem:
    """422."""
    return _invalid(f"{name}: {detail}")


def _invalid(detail: str) -> Problem:
    return Problem(422, "invalid-parameter", "Invalid parameter", detail)


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Its document."""
    return JSONResponse(problem.document, problem.status, headers, media_type=MEDIA_TYPE)


def _allowed(headers: Mapping[str, str] | None) -> dict[str, str]:
    """The methods that a path takes, HEAD with GET."""
    methods = {method.strip() for method in (headers or {}).get("Allow", "").split(",")} - {""}
    if "GET" in methods:
        methods.add("HEAD")
    return {"Allow": ", ".join(sorted(methods))} if methods else {}

"""The query that a request means, or the problem document where it means none."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request

from sparklag_schemas.query_names import ambiguity
from sparklag_service.rest.backend import Backend
from sparklag_service.rest.health import failing
from sparklag_service.rest.problems import Problem
from sparklag_service.view.view import Entry

_HIDE_QUERIES = ("view", "kafka")
"""While one of these parts fails, a query may exist that is not in the view."""
_RETRY_AFTER_S = 2


def find_query(backend: Backend, request: Request, wanted: str) -> Entry:
    """The newest event of a query, by its name, its id or the beginning of that. Raises Problem."""
    return the_one(backend, request, backend.view.find(wanted), wanted)


def the_one(backend: Backend, request: Request, entries: Sequence[Entry], wanted: str) -> Entry:
    """The only one of those that `wanted` may mean. Raises Problem."""
    if len(entries) == 1:
        return entries[0]
    if not entries:
        raise _unknown(failing(backend, request), wanted)
    raise Problem(
        409,
        "ambiguous-query-name",
        "More than one query has this name",
        ambiguity(wanted, [entry.event for entry in entries]),
        query_ids=[entry.event.query_id for entry in entries],
    )


def _unknown(parts: dict[str, str], wanted: str) -> Problem:
    unknown = f"no query has the name or id {wanted!r}"
    if not any(part in parts for part in _HIDE_QUERIES):
        return Problem(
            404, "unknown-query", "Unknown query", f"{unknown}; GET /lag lists all queries"
        )
    reasons = "; ".join(f"{part}: {reason}" for part, reason in parts.items())
    return Problem(
        503,
        "not-ready",
        "The service is not ready",
        f"{unknown} yet, and the view is not complete: {reasons}",
        failing=parts,
        retry_after_s=_RETRY_AFTER_S,
    )

"""`DELETE /lag/{query}`: forget a query that nothing speaks of any more.

There is no login, so by default it is taken from this machine alone. A page of another origin sends
no DELETE: its browser asks for leave first (CORS), which this service gives to nobody.
"""

from __future__ import annotations

from fastapi import FastAPI, Request, Response

from sparklag_schemas import LagEvent
from sparklag_service.rest.backend import Backend
from sparklag_service.rest.find_query import the_one
from sparklag_service.rest.openapi import REFUSED, refused
from sparklag_service.rest.problems import Problem
from sparklag_service.rest.request_rules import is_local
from sparklag_service.view.view import is_forgettable


def add_forget(app: FastAPI, backend: Backend) -> None:
    """The route."""
    allowed_from = backend.settings.http_forget

    @app.delete(
        "/lag/{query:name}",
        tags=["lag"],
        summary="Forget a query that has no driver",
        status_code=204,
        response_class=Response,
        responses={
            403: refused("Not allowed from this address: see setting http_forget"),
            404: refused("No query has this id"),
            409: refused("It is live, or more than one id begins so, or this is a name"),
            422: REFUSED,
            503: refused(
                "Kafka does not answer, or the view is not complete and has no such query"
            ),
        },
    )
    async def forget(request: Request, query: str) -> Response:
        """By its id, or the first characters of that; not by name, which may mean another query by
        now. It leaves a tombstone on `consumer-lag`; every instance drops it. The offset store
        keeps its history."""
        if allowed_from != "anywhere" and (allowed_from == "off" or not is_local(request)):
            raise Problem(
                403,
                "forget-not-allowed",
                "Not allowed",
                f"setting http_forget is {allowed_from}: not from this address, or not by a proxy",
            )
        event = _find_by_id(backend, request, query)
        if not is_forgettable(event):
            raise Problem(
                409,
                "query-is-live",
                "The query is live",
                f"query {event.query_id} is {event.status}: its driver, checkpoint or group speaks,"
                " and it would be back at the next message",
            )
        if not await backend.forget(event):
            detail = f"the tombstone of query {event.query_id} is not acknowledged: try again"
            raise Problem(503, "kafka-away", "Kafka does not answer", detail)
        return Response(status_code=204)


def _find_by_id(backend: Backend, request: Request, wanted: str) -> LagEvent:
    """Raises Problem."""
    view = backend.view
    entry = view.get(wanted)
    if entry is not None:
        return entry.event
    if named := view.named(wanted):
        raise Problem(
            409,
            "id-needed",
            "Forgetting takes an id",
            f"{wanted!r} is a name, not an id",
            query_ids=[each.event.query_id for each in named],
        )
    return the_one(backend, request, view.with_prefix(wanted), wanted).event

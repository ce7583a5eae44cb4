"""Requests to a running service; every failure becomes one line."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx

from sparklag_schemas import LagEvent, decode_lag_event
from sparklag_schemas.redaction import shown_url
from sparklag_service.errors import ServiceError

_TIMEOUT_S = 10.0


def get_lag(url: str, query: str) -> tuple[LagEvent, str]:
    """A query's event, and the JSON it came as. Raises ServiceError."""
    response = _get(url, f"/lag/{quote(query, safe='')}", {})
    return decode_lag_event(response.content), response.text


def list_lag(url: str, **filters: str | None) -> list[dict[str, Any]]:
    """The summaries of all queries that match `filters`, over all pages. Raises ServiceError."""
    parameters = {name: value for name, value in filters.items() if value is not None}
    summaries: list[dict[str, Any]] = []
    while True:
        page = _get(url, "/lag", parameters).json()
        summaries += page["queries"]
        if page["next_cursor"] is None:
            return summaries
        parameters["cursor"] = page["next_cursor"]


def _get(url: str, path: str, parameters: dict[str, str]) -> httpx.Response:
    shown = shown_url(url)
    try:
        response = httpx.get(url.rstrip("/") + path, params=parameters, timeout=_TIMEOUT_S)
    except httpx.InvalidURL as error:
        # Neither it nor the error is quoted: what looks like a port may be a password.
        raise ServiceError("--url is no address of a service: expected http://host:port") from error
    except httpx.TimeoutException as error:
        raise ServiceError(f"the service at {shown} did not answer in {_TIMEOUT_S:g} s") from error
    except httpx.HTTPError as error:
        raise ServiceError(
            f"no service at {shown} ({error}):"
            " start one with `sparklag serve`, or say where with --url"
        ) from error
    if response.is_success:
        return response
    try:
        document = response.json()
        detail = document["detail"]
    except (ValueError, KeyError, TypeError):
        detail = f"status {response.status_code}: is this a sparklag service?"
        document = {}
    if "query_ids" in document:
        detail += ": " + ", ".join(document["query_ids"])
    raise ServiceError(f"{shown}: {detail}")

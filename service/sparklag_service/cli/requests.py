"""Requests to a running service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

import httpx
import msgspec

from sparklag_schemas.redaction import shown_url
from sparklag_schemas.rest_interface import ReceivedProblem
from sparklag_service.errors import RequestRefused, ServiceError

_TIMEOUT_S: Final = 10.0

_Body = TypeVar("_Body")


def get(url: str, path: str, parameters: Mapping[str, str], body_type: type[_Body]) -> _Body:
    """The body of the answer. Raises as `request` does, and where it is no `body_type`."""
    response = request("GET", url, path, parameters)
    try:
        return msgspec.json.decode(response.content, type=body_type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ServiceError(f"{shown_url(url)}: {error}: is this a sparklag service?") from error


def request(
    method: str, url: str, path: str, parameters: Mapping[str, str] | None = None
) -> httpx.Response:
    """Its answer, where that is a success. Raises RequestRefused, or ServiceError for the rest."""
    shown = shown_url(url)
    try:
        response = httpx.request(
            method, url.rstrip("/") + path, params=parameters, timeout=_TIMEOUT_S
        )
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
        problem = msgspec.json.decode(response.content, type=ReceivedProblem)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        detail = f"status {response.status_code}: is this a sparklag service?"
        raise ServiceError(f"{shown}: {detail}") from error
    raise RequestRefused(f"{shown}: {problem.text}", problem.kind)

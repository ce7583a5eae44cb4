"""Requests to a running service."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import msgspec

from sparklag_schemas import load_settings
from sparklag_schemas.codec import MAX_MESSAGE_BYTES, NOT_JSON, bounded_json
from sparklag_schemas.rest_interface import ReceivedProblem
from sparklag_schemas.service_access import ServiceAccess
from sparklag_schemas.text.locations import shown_url
from sparklag_service.errors import RequestRefused, ServiceError

TIMEOUT_S: Final = 10.0
UNCOMPRESSED: Final = {
    "accept-encoding": "identity"
}  # the size of a compressed response has no bound
_Document = TypeVar("_Document")


def base_url(url: str) -> str:
    """Returns the base URL of a service, without a final slash. Raises ServiceError."""
    expected = "expected http://host:port, or one with a path: http://host/path"
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        # The text quotes neither the URL nor the error: an apparent port may be a password.
        raise ServiceError(f"--url is not the address of a service: {expected}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.fragment:
        raise ServiceError(f"--url {shown_url(url)} is not the address of a service: {expected}")
    return url.rstrip("/#?")


def service_at(url: str, config: Path | None = None) -> ServiceAccess:
    """The service at `--url`, with the credentials of the settings. Raises ServiceError,
    SettingsError."""
    return ServiceAccess(base_url(url), load_settings(config=config).service_client)


def options(service: ServiceAccess) -> dict[str, Any]:
    """The options of a client of httpx, which follows no redirect. Raises SettingsError."""
    headers, is_https = service.headers(), service.context is not None
    return {
        "headers": {**UNCOMPRESSED, **headers},
        "timeout": TIMEOUT_S,
        "verify": service.context or False,  # for http: reading certificates takes long
        "trust_env": is_https or not headers,  # no proxy may read a token
    }


def request(
    method: str, service: ServiceAccess, path: str, parameters: Mapping[str, str] | None = None
) -> bytes:
    """Returns the body of a successful response. Raises RequestRefused, or ServiceError."""
    address = service.url + path
    try:
        with httpx.stream(method, address, params=parameters, **options(service)) as response:
            return read(response, service)
    except httpx.HTTPError as error:
        raise unreachable(service, error) from error


def read(response: httpx.Response, service: ServiceAccess) -> bytes:
    """Returns the body. Raises like `extend` and `require_success`."""
    body = bytearray()
    for chunk in response.iter_raw():
        extend(body, chunk, service.url)
    return require_success(response, body, service)


def extend(body: bytearray, chunk: bytes, url: str) -> None:
    """Add a part of a response. Raises ServiceError if the response exceeds a service's limit."""
    body += chunk
    if len(body) > MAX_MESSAGE_BYTES:
        raise not_sparklag(url)


class ServiceClient:
    """GET requests on an event loop, with connections that the context manager closes."""

    def __init__(self, service: ServiceAccess) -> None:
        self.url = service.url
        self._service = service
        self._http = httpx.AsyncClient(**options(service))

    async def get(self, path: str, parameters: Mapping[str, str] | None = None) -> bytes:
        """Returns the body. Raises like `request`."""
        body, headers = bytearray(), self._service.headers()
        try:
            address = self.url + path
            async with self._http.stream(
                "GET", address, params=parameters, headers=headers
            ) as response:
                async for chunk in response.aiter_raw():
                    extend(body, chunk, self.url)
        except httpx.HTTPError as error:
            raise unreachable(self._service, error) from error
        return require_success(response, body, self._service)

    async def __aenter__(self) -> ServiceClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()


def unreachable(service: ServiceAccess, error: httpx.HTTPError) -> ServiceError:
    shown = service.shown
    if isinstance(error, httpx.TimeoutException):
        return ServiceError(f"the service at {shown} did not answer in {TIMEOUT_S:g} s")
    was_ended = isinstance(error, httpx.ReadError | httpx.WriteError | httpx.RemoteProtocolError)
    problem = service.tls_problem(error, was_ended=was_ended)
    if problem is not None:
        return ServiceError(f"{shown}: {problem}")
    return ServiceError(
        f"no service at {shown} ({error}): start one with `sparklag serve`, or say where with --url"
    )


def require_success(response: httpx.Response, body: bytearray, service: ServiceAccess) -> bytes:
    """Returns the body. Raises RequestRefused with the response's problem document, or ServiceError
    without one."""
    if response.is_success:
        return bytes(body)
    shown, what_to_set = service.shown, service.refusal(response.status_code)
    try:
        problem = msgspec.json.decode(body, type=ReceivedProblem)
    except NOT_JSON as error:
        detail = f"status {response.status_code}{what_to_set or ': is this a sparklag service?'}"
        raise ServiceError(f"{shown}: {detail}") from error
    raise RequestRefused(f"{shown}: {problem.text}{what_to_set}", problem.kind)


def decoded(content: bytes | msgspec.Raw, kind: type[_Document], url: str) -> _Document:
    """Returns the document of a successful response. Raises ServiceError for another kind."""
    try:
        return msgspec.json.decode(bounded_json(bytes(content)), type=kind)
    except NOT_JSON as error:
        raise not_sparklag(url) from error


def not_sparklag(url: str) -> ServiceError:
    """The error of a URL where another program responds."""
    return ServiceError(f"{shown_url(url)} does not answer like a sparklag service: check --url")

"""Requests to a running service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import httpx
import msgspec

from sparklag_schemas.codec import MAX_MESSAGE_BYTES, NOT_JSON, bounded_json
from sparklag_schemas.rest_interface import ReceivedProblem
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


def request(method: str, url: str, path: str, parameters: Mapping[str, str] | None = None) -> bytes:
    """Returns the body of a successful response. Raises RequestRefused, or ServiceError."""
    address = base_url(url) + path
    options: Any = {"headers": UNCOMPRESSED, "timeout": TIMEOUT_S}
    try:
        with httpx.stream(method, address, params=parameters, **options) as response:
            return read(response, url)
    except httpx.HTTPError as error:
        raise unreachable(url, error) from error


def read(response: httpx.Response, url: str) -> bytes:
    """Returns the body. Raises like `extend` and `require_success`."""
    body = bytearray()
    for chunk in response.iter_raw():
        extend(body, chunk, url)
    return require_success(response, body, url)


def extend(body: bytearray, chunk: bytes, url: str) -> None:
    """Add a part of a response. Raises ServiceError if the response exceeds a service's limit."""
    body += chunk
    if len(body) > MAX_MESSAGE_BYTES:
        raise not_sparklag(url)


class ServiceClient:
    """GET requests on an event loop, with connections that the context manager closes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.AsyncClient(timeout=TIMEOUT_S, headers=UNCOMPRESSED)

    async def get(self, path: str, parameters: Mapping[str, str] | None = None) -> bytes:
        """Returns the body. Raises like `request`."""
        address = base_url(self.url) + path
        body = bytearray()
        try:
            async with self._http.stream("GET", address, params=parameters) as response:
                async for chunk in response.aiter_raw():
                    extend(body, chunk, self.url)
        except httpx.HTTPError as error:
            raise unreachable(self.url, error) from error
        return require_success(response, body, self.url)

    async def __aenter__(self) -> ServiceClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()


def unreachable(url: str, error: httpx.HTTPError) -> ServiceError:
    """The error of a failed request, in one line."""
    shown = shown_url(url)
    if isinstance(error, httpx.TimeoutException):
        return ServiceError(f"the service at {shown} did not answer in {TIMEOUT_S:g} s")
    return ServiceError(
        f"no service at {shown} ({error}): start one with `sparklag serve`, or say where with --url"
    )


def require_success(response: httpx.Response, body: bytearray, url: str) -> bytes:
    """Returns the body. Raises RequestRefused with the response's problem document, or ServiceError
    without one."""
    if response.is_success:
        return bytes(body)
    shown = shown_url(url)
    try:
        problem = msgspec.json.decode(body, type=ReceivedProblem)
    except NOT_JSON as error:
        detail = f"status {response.status_code}: is this a sparklag service?"
        raise ServiceError(f"{shown}: {detail}") from error
    raise RequestRefused(f"{shown}: {problem.text}", problem.kind)


def decoded(content: bytes | msgspec.Raw, kind: type[_Document], url: str) -> _Document:
    """Returns the document of a successful response. Raises ServiceError for another kind."""
    try:
        return msgspec.json.decode(bounded_json(bytes(content)), type=kind)
    except NOT_JSON as error:
        raise not_sparklag(url) from error


def not_sparklag(url: str) -> ServiceError:
    """The error of a URL where another program responds."""
    return ServiceError(f"{shown_url(url)} does not answer like a sparklag service: check --url")

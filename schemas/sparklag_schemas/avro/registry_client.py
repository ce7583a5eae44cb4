"""Requests to a schema registry with Confluent's API. Responses are bounded in size and time;
redirects are not followed, and nothing is decompressed."""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, Final

import httpx
import msgspec

from sparklag_schemas.codec import NOT_JSON
from sparklag_schemas.errors import (
    IncompatibleSchema,
    RegistryRefused,
    RegistryUnavailable,
    SettingsError,
)
from sparklag_schemas.settings import RegistrySettings
from sparklag_schemas.text.printable import printable
from sparklag_schemas.text.redaction import redact

_MAX_ANSWER_BYTES: Final = 512 * 1024
_CONNECTIONS: Final = 8
_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_NOT_ANSWERED: Final = (401, 408, 425, 429)
"""These statuses, and 5xx, concern more than one request."""
_NO_SUCH_PATH: Final = (0, 404)
"""Error codes of a 404 that does not come from a registry."""
_MAX_TEXT: Final = 300


class Answer(msgspec.Struct, rename={"schema_type": "schemaType"}):
    """The fields of a registry's response, of all requests in this module."""

    id: Annotated[int, msgspec.Meta(ge=0, lt=2**32)] | None = None
    schema: str = ""
    schema_type: str | None = None
    """None: Avro."""
    references: Any = None
    error_code: int = 0
    message: str = ""


_answers = msgspec.json.Decoder(Answer)


class RegistryClient(AbstractAsyncContextManager["RegistryClient"]):
    """An HTTP client for consecutive requests."""

    def __init__(self, settings: RegistrySettings) -> None:
        """Raises RegistryRefused where the TLS files cannot be read."""
        self._settings = settings
        self._urls = [url.strip().rstrip("/") for url in (settings.url or "").split(",")]
        user = settings.username
        verify: ssl.SSLContext | bool = False  # saves the time to read certificates
        if "https://" in (settings.url or ""):
            try:
                verify = settings.client_context(f"schema registry {settings.url}")
            except SettingsError as error:
                raise RegistryRefused(str(error)) from error
        self._http = httpx.AsyncClient(
            verify=verify,
            auth=None if user is None else httpx.BasicAuth(user, settings.password or ""),
            headers={"accept": f"{_MEDIA_TYPE}, application/json", "accept-encoding": "identity"},
            limits=httpx.Limits(max_connections=_CONNECTIONS),
            timeout=None,
        )

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def request(
        self, method: str, path: str, body: Any = None, *, timeout_s: float | None = None
    ) -> Answer | None:
        """The response. None: the requested object does not exist. `timeout_s` is the deadline of
        all URLs together; None: `registry.timeout_s`.

        Raises RegistryUnavailable where no URL answers, RegistryRefused for a refused request.
        """
        failure = RegistryUnavailable("no schema registry")
        share_s = (timeout_s or self._settings.timeout_s) / len(self._urls)
        for url in self._urls:
            try:
                exchange = self._exchange(method, url + path, body)
                return self._answer(*await asyncio.wait_for(exchange, share_s))
            except RegistryUnavailable as error:
                failure = error
            except (asyncio.TimeoutError, httpx.HTTPError, OSError) as error:
                is_late = isinstance(error, asyncio.TimeoutError)
                why = f"no answer in {share_s:g} s" if is_late else _cause(error)
                failure = RegistryUnavailable(printable(f"schema registry {url}: {why}"))
                failure.__cause__ = error
        raise failure

    async def _exchange(self, method: str, url: str, body: Any) -> tuple[int, bytes]:
        content = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"content-type": _MEDIA_TYPE}
        received = bytearray()
        async with self._http.stream(method, url, content=content, headers=headers) as response:
            async for part in response.aiter_raw():
                received += part
                if len(received) > _MAX_ANSWER_BYTES:
                    raise RegistryRefused(
                        f"schema registry {self._settings.url} answers more than"
                        f" {_MAX_ANSWER_BYTES:,} bytes"
                    )
        return response.status_code, bytes(received)

    def _answer(self, status: int, content: bytes) -> Answer | None:
        name, user = f"schema registry {self._settings.url}", self._settings.username
        try:
            answer = _answers.decode(content)
        except NOT_JSON as error:
            answer = Answer(message=content[:_MAX_TEXT].decode(errors="replace"))
            if 200 <= status < 300:
                why = printable(f"{error}: {answer.message}")
                raise RegistryRefused(f"{name} gives an unexpected answer: {why}") from error
        if 200 <= status < 300:
            return answer
        if status == 404 and answer.error_code not in _NO_SUCH_PATH:
            return None
        message = printable(redact(" ".join(answer.message.split())), _MAX_TEXT)
        if status in (401, 403):
            message = f"user {user!r}" if user else "a client without registry.username"
            message = f"{name} refuses {message} ({status})"
        elif status == 409:
            raise IncompatibleSchema(f"{name} refuses the schema as incompatible: {message}")
        else:
            hint = " (is this the address of Confluent's API?)" if status == 404 else ""
            message = f"{name}: {status}, {message}{hint}"
        if status in _NOT_ANSWERED or status >= 500:
            raise RegistryUnavailable(message)
        raise RegistryRefused(message)


def _cause(error: BaseException) -> str:
    """The text of the root cause of an error of httpx."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    if isinstance(error, ConnectionError) and error.errno is not None:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__

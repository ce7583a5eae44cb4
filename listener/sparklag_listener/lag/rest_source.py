"""Requests lag from a service, over its REST interface, with the standard library alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

import msgspec

from sparklag_listener.errors import AmbiguousQueryName, LagUnavailable, QueryNotFound
from sparklag_listener.lag import await_within, not_found
from sparklag_schemas import ContractError, LagEvent, decode_lag_event
from sparklag_schemas.codec import MAX_MESSAGE_BYTES, NOT_JSON
from sparklag_schemas.rest_interface import ReceivedProblem, path_segment
from sparklag_schemas.service_access import ServiceAccess
from sparklag_schemas.text.printable import printable

_CHUNK_BYTES: Final = 256 * 1024


class RestSource:
    """A LagSource that follows no redirect and takes no proxy."""

    def __init__(self, service: ServiceAccess) -> None:
        self._service = service
        self._url = urlsplit(service.url)
        self._shown = f"the service at {service.shown}"

    def find(self, query: str, timeout_s: float) -> LagEvent:
        return self._request([query], timeout_s)[0]

    def newest(self, query_ids: Collection[str], timeout_s: float) -> list[LagEvent]:
        return self._request(query_ids, timeout_s, is_missing_allowed=True)

    def _request(
        self, queries: Collection[str], timeout_s: float, *, is_missing_allowed: bool = False
    ) -> list[LagEvent]:
        deadline_s = time.monotonic() + timeout_s
        headers = {"Accept": "application/json", **self._service.headers()}
        context = self._service.context

        def request_all() -> list[LagEvent]:
            left_s = max(0.1, deadline_s - time.monotonic())
            events = []
            host, port = self._url.hostname or "", self._url.port
            with closing(
                HTTPConnection(host, port, timeout=left_s)
                if context is None
                else HTTPSConnection(host, port, timeout=left_s, context=context)
            ) as connection:
                for query in queries:
                    try:
                        events.append(self._event(connection, query, headers, deadline_s))
                    except QueryNotFound:
                        if not is_missing_allowed:
                            raise
            return events

        # In a thread: resolving a host name may take longer than the timeout of a socket.
        return await_within(timeout_s, asyncio.to_thread(request_all), self._shown)

    def _event(
        self, connection: HTTPConnection, query: str, headers: dict[str, str], deadline_s: float
    ) -> LagEvent:
        try:
            path = f"{self._url.path.rstrip('/')}/lag/{path_segment(query)}"
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            body = b""
            while chunk := response.read(_CHUNK_BYTES):
                body += chunk
                if len(body) > MAX_MESSAGE_BYTES or time.monotonic() > deadline_s:
                    raise LagUnavailable(f"{self._shown} sends too much, or too slowly")
        except (OSError, HTTPException) as error:
            was_ended = isinstance(error, ConnectionResetError | BrokenPipeError)
            problem = self._service.tls_problem(error, was_ended=was_ended)
            if problem is not None:
                raise LagUnavailable(f"{self._shown}: {problem}") from error
            cause = printable(str(error) or type(error).__name__, 300)
            raise LagUnavailable(f"{self._shown} does not answer: {cause}") from error
        if response.status == 200:
            try:
                return decode_lag_event(body)
            except ContractError as error:
                raise LagUnavailable(f"{self._shown} sends no lag event: {error}") from error
        raise self._refusal(query, response.status, body)

    def _refusal(self, query: str, status: int, body: bytes) -> Exception:
        what_to_set = self._service.refusal(status)
        try:
            problem = msgspec.json.decode(body, type=ReceivedProblem)
        except NOT_JSON:
            return LagUnavailable(
                f"{self._shown} answers with status {status}"
                + (what_to_set or ": is this a sparklag service (setting service_url)?")
            )
        if problem.kind == "unknown-query":
            return not_found(query, problem.alike)
        text = printable(problem.text, 1_000)
        if problem.kind == "ambiguous-query-name":
            return AmbiguousQueryName(text)
        return LagUnavailable(f"{self._shown}: {text}{what_to_set}")

"""A schema registry: its responses are cached, and the rate of requests is bounded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable
from contextlib import suppress
from typing import Final, TypeVar
from urllib.parse import quote

from sparklag_schemas.avro.registry_client import RegistryClient
from sparklag_schemas.avro.schema import AvroSchema, parse_schema
from sparklag_schemas.errors import (
    MalformedMessage,
    RegistryError,
    RegistryRefused,
    RegistryUnavailable,
)
from sparklag_schemas.settings import RegistrySettings
from sparklag_schemas.text.printable import printable

_FAILURE_S: Final = 2.0
"""The time for which a failure is repeated without a request."""
_MISSING_S: Final = 60.0
"""The time for which a missing schema is not requested again."""
_MAX_MISSING: Final = 1_000
_MAX_SCHEMAS: Final = 48
_MAX_AT_ONCE: Final = 8
"""The limit of new ids in one call. The cache holds these and the ids already in use."""
_BUDGET_S: Final = 0.5
_BUDGET_SHARE: Final = 0.2
"""The budget of time for requests that return no schema, and its refill for each second that
passes. While it is exhausted, each call sends one request."""
_RETRY_S: Final = 0.2
_PROBE_S: Final = 1.0
_HURRY_S: Final = 0.1
"""Deadline of a request for an unknown id, for `_MISSING_S` after the registry failed for one."""
_WAITING_S: Final = 30.0
"""Longer than a reader takes to try again."""
_ANYTHING: Final = "anything"

Result = TypeVar("Result")


class SchemaRegistry:
    """The ids of our schemas, and the schemas of received ids. Both are cached."""

    def __init__(self, settings: RegistrySettings) -> None:
        """`settings.url` is set."""
        self._settings = settings
        self._lock = asyncio.Lock()
        self._ids: dict[tuple[str, str], int] = {}
        self._schemas: dict[int, AvroSchema] = {}
        """Sorted by their last use."""
        self._missing: dict[int, tuple[str, float]] = {}
        self._failures: dict[Hashable, tuple[RegistryError, float]] = {}
        self._budget_s, self._counted_s = _BUDGET_S, time.monotonic()
        self._hurry_until_s = 0.0

    @property
    def waiting(self) -> str | None:
        """Why messages wait for the registry, by the newest request. None: no message waits."""
        error, until_s = self._failures.get(_ANYTHING, (None, 0.0))
        return str(error) if error and time.monotonic() < until_s + _WAITING_S else None

    async def id_of(self, subject: str, schema: AvroSchema) -> int:
        """The id of our schema under that subject. Registers a missing schema. Raises
        RegistryUnavailable, RegistryRefused, IncompatibleSchema."""
        key = (subject, schema.text)
        async with self._lock:
            if key not in self._ids:
                self._ids[key] = await self._request(
                    subject, lambda client: self._find_or_register(client, subject, schema)
                )
                self._keep(self._ids[key], schema)
        return self._ids[key]

    async def find(self, subject: str, schema: AvroSchema) -> int | None:
        """The id of our schema under that subject. None: it is not registered. Raises
        RegistryUnavailable, RegistryRefused."""
        return await self._request(subject, lambda client: self._lookup(client, subject, schema))

    async def learn(self, schema_ids: Iterable[int]) -> None:
        """Fetch the schemas of these ids, or record why a schema is not available. Ids close to
        cached ones are requested first, since registries assign consecutive ids.

        Raises RegistryUnavailable where the registry is not available for any id.
        """
        unknown = [new for new in dict.fromkeys(schema_ids) if not self.is_cached(new)]
        if not unknown:
            return
        self._raise_failure(_ANYTHING)
        cached = list(self._schemas) or [0]
        unknown.sort(key=lambda new: min(abs(new - old) for old in cached))
        requested = unknown[: self._allowance()]
        began_s = time.monotonic()
        async with RegistryClient(self._settings) as client:
            results = await asyncio.gather(
                *(self._learn(client, new) for new in requested), return_exceptions=True
            )
        for error in filter(None, results):
            if isinstance(error, RegistryUnavailable):
                self._failures[_ANYTHING] = (error, time.monotonic() + _FAILURE_S)
            raise error
        self._failures.pop(_ANYTHING, None)
        if any(new not in self._schemas for new in requested):
            self._budget_s = max(self._budget_s - (time.monotonic() - began_s), -_BUDGET_S)

    def schema(self, schema_id: int) -> AvroSchema:
        """The schema of a learned id. Raises MalformedMessage with the reason it is missing."""
        if schema_id not in self._schemas:
            reason, _ = self._missing.get(schema_id, ("too many unknown ids to request it", 0))
            raise MalformedMessage(f"Avro of schema id {schema_id}: {reason}")
        return self._schemas[schema_id]

    def is_cached(self, schema_id: int) -> bool:
        """True: `learn` has nothing to request for this id now, and `schema` may be called."""
        if schema_id in self._schemas:
            self._schemas[schema_id] = self._schemas.pop(schema_id)
            return True
        return self._missing.get(schema_id, ("", 0.0))[1] > time.monotonic()

    def _allowance(self) -> int:
        """The number of unknown ids that may be requested now."""
        now_s = time.monotonic()
        budget_s = self._budget_s + _BUDGET_SHARE * (now_s - self._counted_s)
        self._budget_s, self._counted_s = min(budget_s, _BUDGET_S), now_s
        return _MAX_AT_ONCE if self._budget_s > 0 else 1

    async def _learn(self, client: RegistryClient, schema_id: int) -> None:
        """Retries until the deadline, since a registry may fail for this id alone. Raises
        RegistryUnavailable where it fails for cached ids too."""
        timeout_s, now_s = self._settings.timeout_s, time.monotonic()
        if now_s < self._hurry_until_s:
            timeout_s = min(timeout_s, _HURRY_S)
        deadline_s, reason = now_s + timeout_s, ""
        while True:
            try:
                left_s = max(deadline_s - time.monotonic(), 0.01)
                self._keep(schema_id, await self._fetch(client, schema_id, left_s))
                return
            except (MalformedMessage, RegistryRefused) as error:
                reason = str(error)
                break
            except RegistryUnavailable as error:
                reason = reason or str(error)
                await self._require_answers()
                if time.monotonic() + _RETRY_S > deadline_s:
                    self._hurry_until_s = time.monotonic() + _MISSING_S
                    break
                await asyncio.sleep(_RETRY_S)
        self._missing.pop(schema_id, None)
        self._missing[schema_id] = (reason, time.monotonic() + _MISSING_S)
        if len(self._missing) > _MAX_MISSING:
            del self._missing[next(iter(self._missing))]

    def _keep(self, schema_id: int, schema: AvroSchema) -> None:
        self._schemas[schema_id] = schema
        if len(self._schemas) > _MAX_SCHEMAS:
            del self._schemas[next(iter(self._schemas))]

    async def _fetch(self, client: RegistryClient, schema_id: int, timeout_s: float) -> AvroSchema:
        answer = await client.request("GET", f"/schemas/ids/{schema_id}", timeout_s=timeout_s)
        if answer is None:
            raise MalformedMessage(f"registry {self._settings.url} does not have it")
        kind = answer.schema_type or "AVRO"
        if kind != "AVRO" or answer.references:
            references = " with references" if answer.references else ""
            raise MalformedMessage(f"it is {printable(kind, 20)}{references}")
        return parse_schema(answer.schema)

    async def _require_answers(self) -> None:
        cached = next(reversed(self._schemas), None)
        path = "/schemas/types" if cached is None else f"/schemas/ids/{cached}"
        timeout_s = min(self._settings.timeout_s, _PROBE_S)
        # A client of its own: requests that wait may occupy all connections of another.
        async with RegistryClient(self._settings) as client:
            with suppress(RegistryRefused):
                await client.request("GET", path, timeout_s=timeout_s)

    def _raise_failure(self, *requests: Hashable) -> None:
        for error, until_s in filter(None, map(self._failures.get, requests)):
            if time.monotonic() < until_s:
                raise type(error)(str(error))

    async def _request(
        self, subject: str, call: Callable[[RegistryClient], Awaitable[Result]]
    ) -> Result:
        """Raises a failure again for a short time without a request: for the same subject, or for
        every subject where the registry is not available."""
        self._raise_failure(subject, _ANYTHING)
        try:
            async with RegistryClient(self._settings) as client:
                result = await call(client)
        except RegistryError as error:
            key = _ANYTHING if isinstance(error, RegistryUnavailable) else subject
            self._failures[key] = (error, time.monotonic() + _FAILURE_S)
            raise
        self._failures.clear()
        return result

    async def _find_or_register(
        self, client: RegistryClient, subject: str, schema: AvroSchema
    ) -> int:
        name = quote(subject, safe="")
        schema_id = await self._lookup(client, subject, schema)
        if schema_id is None and not self._settings.register:
            raise RegistryRefused(
                f"schema {schema.name} is not registered under subject {subject}, and"
                " registry.register = false: register it with `sparklag topics create`"
            )
        if self._settings.register:
            config = f"/config/{name}"
            if await client.request("GET", config) is None:
                wanted = {"compatibility": self._settings.compatibility}
                await client.request("PUT", config, wanted)
        if schema_id is None:
            answer = await client.request("POST", f"/subjects/{name}/versions", _body(schema))
            if answer is None or answer.id is None:
                raise RegistryRefused(f"schema registry {self._settings.url} gives no id")
            schema_id = answer.id
        return schema_id

    async def _lookup(self, client: RegistryClient, subject: str, schema: AvroSchema) -> int | None:
        path = f"/subjects/{quote(subject, safe='')}"
        answer = await client.request("POST", path, _body(schema))
        return None if answer is None else answer.id


def _body(schema: AvroSchema) -> dict[str, str]:
    return {"schema": schema.text, "schemaType": "AVRO"}

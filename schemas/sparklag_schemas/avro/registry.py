"""A schema registry, by Confluent's client: in threads, with one request for each schema."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Final, TypeVar

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from sparklag_schemas.avro.schema import AvroSchema, parse_schema
from sparklag_schemas.errors import (
    IncompatibleSchema,
    MalformedMessage,
    RegistryError,
    RegistryRefused,
    RegistryUnavailable,
)
from sparklag_schemas.settings import RegistrySettings

_FAILURE_S: Final = 2.0
"""For so long a failure is repeated without a request."""
_MISSING_S: Final = 60.0
"""For so long a schema that the registry does not have is not requested again."""
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_ANYTHING: Final = "anything"
_NO_SUCH_PATH: Final = (-1, _NOT_FOUND)

Result = TypeVar("Result")


class SchemaRegistry:
    """Ids of schemas, and schemas of ids. Each is requested once, and then cached."""

    def __init__(self, settings: RegistrySettings) -> None:
        """`settings.url` is set."""
        self._settings = settings
        self._lock = asyncio.Lock()
        self._ids: dict[tuple[str, str], int] = {}
        self._schemas: dict[int, AvroSchema] = {}
        self._missing: dict[int, tuple[str, float]] = {}
        self._failures: dict[Hashable, tuple[RegistryError, float]] = {}

    async def id_of(self, subject: str, schema: AvroSchema) -> int:
        """The id of our schema under that subject. Registers it where it is missing.

        Raises RegistryUnavailable, RegistryRefused, IncompatibleSchema.
        """
        key = (subject, schema.text)
        if key not in self._ids:
            async with self._lock:
                if key not in self._ids:
                    schema_id = await self._request(
                        subject, lambda client: self._find_or_register(client, subject, schema)
                    )
                    self._ids[key] = schema_id
                    self._schemas[schema_id] = schema
        return self._ids[key]

    async def find(self, subject: str, schema: AvroSchema) -> int | None:
        """The id of our schema under that subject. None: it is not registered.

        Raises RegistryUnavailable, RegistryRefused.
        """
        return await self._request(subject, lambda client: self._lookup(client, subject, schema))

    async def learn(self, schema_id: int) -> None:
        """Fetch the schema of that id, or remember that the registry does not have it.

        Raises RegistryUnavailable, RegistryRefused.
        """
        if schema_id in self._schemas or self._is_missing(schema_id):
            return
        async with self._lock:
            if schema_id in self._schemas or self._is_missing(schema_id):
                return
            try:
                self._schemas[schema_id] = await self._request(
                    schema_id, lambda client: self._fetch(client, schema_id)
                )
            except MalformedMessage as error:
                self._missing[schema_id] = (str(error), time.monotonic() + _MISSING_S)

    def schema(self, schema_id: int) -> AvroSchema:
        """A schema that was learned. Raises MalformedMessage, with the reason, where it was not."""
        if schema_id not in self._schemas:
            reason, _ = self._missing.get(schema_id, ("it was not requested", 0))
            raise MalformedMessage(f"Avro of schema id {schema_id}: {reason}")
        return self._schemas[schema_id]

    def _is_missing(self, schema_id: int) -> bool:
        return self._missing.get(schema_id, ("", 0.0))[1] > time.monotonic()

    async def _request(
        self, what: Hashable, call: Callable[[SchemaRegistryClient], Result]
    ) -> Result:
        """Call it in a thread. A failure is repeated for a short time for the same request; where
        the registry does not answer, for all requests."""
        for error, until_s in filter(None, map(self._failures.get, (what, _ANYTHING))):
            if time.monotonic() < until_s:
                raise type(error)(str(error))
        try:
            result = await asyncio.get_running_loop().run_in_executor(None, self._connected, call)
        except RegistryError as error:
            key = _ANYTHING if isinstance(error, RegistryUnavailable) else what
            self._failures[key] = (error, time.monotonic() + _FAILURE_S)
            raise
        self._failures.clear()
        return result

    def _connected(self, call: Callable[[SchemaRegistryClient], Result]) -> Result:
        # There are a few requests in the life of a service: no connection is kept.
        try:
            client = SchemaRegistryClient(_client_options(self._settings))
        except (ValueError, OSError) as error:
            files = self._settings.tls_files
            where = f"{self._settings.url}, TLS files ({files})" if files else self._settings.url
            raise RegistryRefused(f"schema registry {where}: {error}") from error
        with client:
            return call(client)

    def _find_or_register(
        self, client: SchemaRegistryClient, subject: str, schema: AvroSchema
    ) -> int:
        schema_id = self._lookup(client, subject, schema)
        if schema_id is None and not self._settings.register:
            raise RegistryRefused(
                f"schema {schema.name} is not registered under subject {subject}, and"
                " registry.register = false: register it with `sparklag topics create`"
            )
        if self._settings.register:
            level = self._call(lambda: client.get_compatibility(subject), none_if_missing=True)
            if level is None:
                wanted = self._settings.compatibility
                self._call(lambda: client.set_compatibility(subject, wanted))
        if schema_id is None:
            offered = Schema(schema.text, "AVRO")
            schema_id = self._call(lambda: client.register_schema(subject, offered))
            assert schema_id is not None
        return schema_id

    def _lookup(self, client: SchemaRegistryClient, subject: str, schema: AvroSchema) -> int | None:
        offered = Schema(schema.text, "AVRO")
        registered = self._call(
            lambda: client.lookup_schema(subject, offered), none_if_missing=True
        )
        return None if registered is None else registered.schema_id

    def _fetch(self, client: SchemaRegistryClient, schema_id: int) -> AvroSchema:
        schema = self._call(lambda: client.get_schema(schema_id), none_if_missing=True)
        if schema is None:
            raise MalformedMessage(f"registry {self._settings.url} does not have it")
        if schema.schema_type != "AVRO" or schema.references:
            references = " with references" if schema.references else ""
            raise MalformedMessage(f"it is {schema.schema_type}{references}")
        return parse_schema(schema.schema_str or "")

    def _call(self, call: Callable[[], Result], *, none_if_missing: bool = False) -> Result | None:
        url, user = self._settings.url, self._settings.username
        try:
            return call()
        except SchemaRegistryError as error:
            status, code = error.http_status_code, error.error_code
            if status == _NOT_FOUND and code not in _NO_SUCH_PATH and none_if_missing:
                return None
            message = " ".join(str(error.error_message).split())[:300]
            if status >= 500:
                raise RegistryUnavailable(
                    f"schema registry {url} failed ({status}): {message}"
                ) from error
            if status == _CONFLICT:
                raise IncompatibleSchema(
                    f"schema registry {url} refuses the schema as incompatible: {message}"
                ) from error
            if status in (401, 403):
                who = f"user {user!r}" if user else "who gives no name (registry.username)"
                raise RegistryRefused(f"schema registry {url} refuses {who} ({status})") from error
            hint = ""
            if status == _NOT_FOUND:
                hint = " (is this the address of Confluent's API?)"
            raise RegistryRefused(f"schema registry {url}: {status}, {message}{hint}") from error
        # Which errors the client raises for a transport depends on its version.
        except Exception as error:
            cause = str(error) or type(error).__name__
            raise RegistryUnavailable(f"schema registry {url}: {cause}") from error


def _client_options(settings: RegistrySettings) -> dict[str, object]:
    options: dict[str, object | None] = {
        "url": settings.url,
        "timeout": settings.timeout_s,
        # The callers try again.
        "max.retries": 0,
        "ssl.ca.location": settings.ssl_cafile,
        "ssl.certificate.location": settings.ssl_certfile,
        "ssl.key.location": settings.ssl_keyfile,
        "ssl.key.password": settings.ssl_key_password,
    }
    if settings.username is not None:
        options["basic.auth.user.info"] = f"{settings.username}:{settings.password or ''}"
    return {name: value for name, value in options.items() if value is not None}

"""A schema registry, by Confluent's client: off the loop, asked once for each schema."""

from __future__ import annotations

import asyncio
import logging
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

_log = logging.getLogger("sparklag")
_PATIENCE_S: Final = 2.0
"""After a failure nothing is asked for so long: all that wait for it fail with it."""
_UNKNOWN_S: Final = 60.0
"""A schema that the registry does not have is not asked for again for so long."""
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_ANYTHING: Final = "anything"
_NO_SUCH_PATH: Final = (-1, _NOT_FOUND)

_MORE_THAN: Final = {
    "BACKWARD": {"BACKWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"},
    "BACKWARD_TRANSITIVE": {"FULL_TRANSITIVE"},
    "FORWARD": {"FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"},
    "FORWARD_TRANSITIVE": {"FULL_TRANSITIVE"},
    "FULL": {"FULL_TRANSITIVE"},
}
"""Levels that promise what another one does, and more."""

Answer = TypeVar("Answer")


class SchemaRegistry:
    """Ids of schemas, and schemas of ids. What it was told once it knows without the registry."""

    def __init__(self, settings: RegistrySettings) -> None:
        """`settings.url` is set."""
        self._settings = settings
        self._asking = asyncio.Lock()
        self._ids: dict[tuple[str, str], int] = {}
        self._schemas: dict[int, AvroSchema] = {}
        self._unknown: dict[int, tuple[str, float]] = {}
        self._failures: dict[Hashable, tuple[RegistryError, float]] = {}

    async def id_of(self, subject: str, schema: AvroSchema) -> int:
        """The id of our schema under that subject, where it is registered if it has to be.

        Raises RegistryUnavailable, RegistryRefused, IncompatibleSchema.
        """
        known = self._ids.get((subject, schema.text))
        if known is None:
            async with self._asking:
                known = self._ids.get((subject, schema.text))
                if known is None:
                    known = await self._ask(
                        subject, lambda client: self._find_or_register(client, subject, schema)
                    )
                    self._ids[subject, schema.text] = known
                    self._schemas[known] = schema
        return known

    async def find(self, subject: str, schema: AvroSchema) -> int | None:
        """The id of our schema under that subject. None: it is not registered there.

        Raises RegistryUnavailable, RegistryRefused.
        """
        return await self._ask(subject, lambda client: self._lookup(client, subject, schema))

    async def learn(self, schema_id: int) -> None:
        """Know what messages of that id are written in, or that nobody knows.

        Raises RegistryUnavailable, RegistryRefused.
        """
        if schema_id in self._schemas or self._is_unknown(schema_id):
            return
        async with self._asking:
            if schema_id in self._schemas or self._is_unknown(schema_id):
                return
            try:
                self._schemas[schema_id] = await self._ask(
                    schema_id, lambda client: self._fetch(client, schema_id)
                )
            except MalformedMessage as error:
                self._unknown[schema_id] = (str(error), time.monotonic() + _UNKNOWN_S)

    def schema(self, schema_id: int) -> AvroSchema:
        """One that was learned. Raises MalformedMessage, with the reason, for what nobody knows."""
        found = self._schemas.get(schema_id)
        if found is None:
            reason, _ = self._unknown.get(schema_id, ("it was not asked for", 0))
            raise MalformedMessage(f"Avro of schema id {schema_id}: {reason}")
        return found

    def _is_unknown(self, schema_id: int) -> bool:
        return self._unknown.get(schema_id, ("", 0.0))[1] > time.monotonic()

    async def _ask(self, what: Hashable, call: Callable[[SchemaRegistryClient], Answer]) -> Answer:
        """In a thread. A failure is that of all who ask the same in the next moments; where no
        registry answers, of all who ask."""
        for error, until_s in filter(None, map(self._failures.get, (what, _ANYTHING))):
            if time.monotonic() < until_s:
                raise type(error)(str(error))
        try:
            answer = await asyncio.get_running_loop().run_in_executor(None, self._connected, call)
        except RegistryError as error:
            of = _ANYTHING if isinstance(error, RegistryUnavailable) else what
            self._failures[of] = (error, time.monotonic() + _PATIENCE_S)
            raise
        self._failures.clear()
        return answer

    def _connected(self, call: Callable[[SchemaRegistryClient], Answer]) -> Answer:
        # It is asked a few times in a service's life: no connection is kept for that.
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
        found = self._lookup(client, subject, schema)
        if found is None and not self._settings.register:
            raise RegistryRefused(
                f"schema {schema.name} is not registered under subject {subject}, and"
                " registry.register = false: register it with `sparklag topics create`"
            )
        self._see_to_compatibility(client, subject)
        if found is None:
            offered = Schema(schema.text, "AVRO")
            found = self._call(lambda: client.register_schema(subject, offered))
            assert found is not None
        return found

    def _lookup(self, client: SchemaRegistryClient, subject: str, schema: AvroSchema) -> int | None:
        offered = Schema(schema.text, "AVRO")
        found = self._call(lambda: client.lookup_schema(subject, offered), none_if_missing=True)
        return None if found is None else found.schema_id

    def _see_to_compatibility(self, client: SchemaRegistryClient, subject: str) -> None:
        """Set what is wanted where the subject has nothing of its own; say where it has another."""
        wanted = self._settings.compatibility
        level = self._call(lambda: client.get_compatibility(subject), none_if_missing=True)
        if level is None and self._settings.register:
            self._call(lambda: client.set_compatibility(subject, wanted))
        elif wanted not in (level, "NONE") and level not in _MORE_THAN.get(wanted, ()):
            _log.warning(
                "subject %s has compatibility %s, wanted is %s: newer schemas may break readers",
                subject,
                level or "of the registry's default",
                wanted,
            )

    def _fetch(self, client: SchemaRegistryClient, schema_id: int) -> AvroSchema:
        found = self._call(lambda: client.get_schema(schema_id), none_if_missing=True)
        if found is None:
            raise MalformedMessage(f"registry {self._settings.url} does not have it")
        if found.schema_type != "AVRO" or found.references:
            raise MalformedMessage(
                f"it is {found.schema_type}{' with references' if found.references else ''}"
            )
        return parse_schema(found.schema_str or "")

    def _call(self, call: Callable[[], Answer], *, none_if_missing: bool = False) -> Answer | None:
        url, user = self._settings.url, self._settings.username
        try:
            return call()
        except SchemaRegistryError as error:
            status, code = error.http_status_code, error.error_code
            if status == _NOT_FOUND and code not in _NO_SUCH_PATH and none_if_missing:
                return None
            said = " ".join(str(error.error_message).split())[:300]
            if status >= 500:
                raise RegistryUnavailable(
                    f"schema registry {url} failed ({status}): {said}"
                ) from error
            if status == _CONFLICT:
                raise IncompatibleSchema(
                    f"schema registry {url} refuses the schema as incompatible: {said}"
                ) from error
            if status in (401, 403):
                who = f"user {user!r}" if user else "who gives no name (registry.username)"
                raise RegistryRefused(f"schema registry {url} refuses {who} ({status})") from error
            hint = ""
            if status == _NOT_FOUND:
                hint = " (is this the address of Confluent's API?)"
            raise RegistryRefused(f"schema registry {url}: {status}, {said}{hint}") from error
        # The client has one error for each kind of transport below it, by its version.
        except Exception as error:
            cause = str(error) or type(error).__name__
            raise RegistryUnavailable(f"schema registry {url}: {cause}") from error


def _client_options(settings: RegistrySettings) -> dict[str, object]:
    options: dict[str, object | None] = {
        "url": settings.url,
        "timeout": settings.timeout_s,
        # Whoever needs an answer asks again.
        "max.retries": 0,
        "ssl.ca.location": settings.ssl_cafile,
        "ssl.certificate.location": settings.ssl_certfile,
        "ssl.key.location": settings.ssl_keyfile,
        "ssl.key.password": settings.ssl_key_password,
    }
    if settings.username is not None:
        options["basic.auth.user.info"] = f"{settings.username}:{settings.password or ''}"
    return {name: value for name, value in options.items() if value is not None}

"""Messages in Avro with Confluent's framing: a zero byte, four bytes of schema id, the message."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import msgspec

from sparklag_schemas.avro.decoder import NOT_AVRO, Input
from sparklag_schemas.avro.encoder import compile_encoder
from sparklag_schemas.avro.registry import SchemaRegistry
from sparklag_schemas.avro.schema import AvroSchema, require_written_as, schema_of
from sparklag_schemas.codec import MAX_MESSAGE_BYTES, Message, MessageWriter, converted, invalid
from sparklag_schemas.errors import MalformedMessage
from sparklag_schemas.messages.headers import AVRO
from sparklag_schemas.settings import RegistrySettings
from sparklag_schemas.text.printable import printable

_PREFIX: Final = struct.Struct(">bI")
_MAGIC: Final = 0


class AvroForm:
    """Writes and reads Avro with the schemas of one registry."""

    def __init__(self, settings: RegistrySettings) -> None:
        """`settings.url` is set."""
        self._settings = settings
        self.registry = SchemaRegistry(settings)

    def writer(self, message_type: type[msgspec.Struct], topic: str) -> AvroWriter:
        """A writer of messages of that type to that topic.

        The subject of the schema is named by one of Confluent's strategies: TopicName, RecordName,
        TopicRecordName.
        """
        schema = schema_of(message_type)
        subjects = {
            "topic": f"{topic}-value",
            "record": schema.name,
            "topic-record": f"{topic}-{schema.name}",
        }
        return AvroWriter(self.registry, subjects[self._settings.subjects], schema)

    def is_known(self, data: bytes) -> bool:
        """True: `read` needs no `learn` for this message."""
        return len(data) < _PREFIX.size or self.registry.is_cached(_schema_id(data))

    async def learn(self, messages: Iterable[bytes]) -> None:
        """Fetch the schemas of these messages, or record why a schema is not available. Raises
        RegistryUnavailable, RegistryRefused."""
        await self.registry.learn(_schema_id(data) for data in messages if not self.is_known(data))

    def read(self, data: bytes, message_type: type[Message], written_as: type) -> Message:
        """The fields of `message_type` in a message of the type `written_as`, whose schema `learn`
        has fetched. Raises ContractError."""
        if not _PREFIX.size <= len(data) <= MAX_MESSAGE_BYTES:
            raise MalformedMessage(
                f"{len(data)} bytes, Avro takes {_PREFIX.size} to {MAX_MESSAGE_BYTES}"
            )
        schema = self.registry.schema(_schema_id(data))
        require_written_as(written_as, schema)
        return decode(data, schema, message_type)


class AvroWriter(MessageWriter):
    """Writes Avro with the schema under one subject."""

    content_type = AVRO

    def __init__(self, registry: SchemaRegistry, subject: str, schema: AvroSchema) -> None:
        self._registry = registry
        self._subject = subject
        self._schema = schema
        self._encode = compile_encoder(schema.parsed)
        self._prefix: bytes | None = None

    async def is_registered(self) -> bool:
        """True: the schema is registered. Raises RegistryUnavailable, RegistryRefused."""
        return await self._registry.find(self._subject, self._schema) is not None

    async def prepare(self) -> None:
        if self._prefix is None:
            schema_id = await self._registry.id_of(self._subject, self._schema)
            self._prefix = _PREFIX.pack(_MAGIC, schema_id)

    async def encode(self, message: msgspec.Struct) -> bytes:
        await self.prepare()
        assert self._prefix is not None
        return self._prefix + self._encode(message)


def _schema_id(data: bytes) -> int:
    return int(_PREFIX.unpack_from(data)[1])


def decode(data: bytes, schema: AvroSchema, message_type: type[Message]) -> Message:
    """Decode a framed message of that schema. Raises ContractError."""
    source = Input(data, _PREFIX.size)
    try:
        schema.decoder(message_type)(source)
    except msgspec.ValidationError as error:
        raise invalid(error, source.fields) from error
    except NOT_AVRO as error:
        raise MalformedMessage(printable(f"not Avro of schema {schema.name}: {error}")) from error
    left = len(data) - source.at
    if left:
        raise MalformedMessage(f"{left} bytes more than its schema {schema.name} has")
    return converted(source.fields, message_type)

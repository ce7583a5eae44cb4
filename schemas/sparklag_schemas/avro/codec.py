"""Messages in Avro, as Confluent frames it: a zero byte, the schema's id in four, the message."""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Any, Final

import fastavro
import msgspec

from sparklag_schemas.avro.encoder import compile_encoder
from sparklag_schemas.avro.registry import SchemaRegistry
from sparklag_schemas.avro.schema import AvroSchema, require_written_as, schema_of
from sparklag_schemas.codec import AVRO, MAX_MESSAGE_BYTES
from sparklag_schemas.errors import MalformedMessage
from sparklag_schemas.printable import printable
from sparklag_schemas.settings import RegistrySettings

_PREFIX: Final = struct.Struct(">bI")
_MAGIC: Final = 0


class AvroForm:
    """Writes and reads Avro with the schemas of one registry."""

    def __init__(self, settings: RegistrySettings) -> None:
        """`settings.url` is set."""
        self._settings = settings
        self._registry = SchemaRegistry(settings)

    def writer(self, message_type: type[msgspec.Struct], topic: str) -> AvroWriter:
        """A writer of messages of that type to that topic."""
        schema = schema_of(message_type)
        return AvroWriter(self._registry, subject_of(topic, schema, self._settings), schema)

    async def learn(self, data: bytes) -> None:
        """Fetch the schema of this message, or learn that the registry does not have it.

        Raises RegistryUnavailable, RegistryRefused.
        """
        if len(data) >= _PREFIX.size:
            await self._registry.learn(_schema_id(data))

    def read(self, data: bytes, written_as: type) -> Any:
        """A message of that type as dicts and lists. Its writer's schema was learned before.

        Raises MalformedMessage.
        """
        if not _PREFIX.size <= len(data) <= MAX_MESSAGE_BYTES:
            raise MalformedMessage(
                f"{len(data)} bytes, Avro takes {_PREFIX.size} to {MAX_MESSAGE_BYTES}"
            )
        schema = self._registry.schema(_schema_id(data))
        require_written_as(written_as, schema)
        return _read(data, schema)


class AvroWriter:
    """See MessageWriter."""

    content_type: Final = AVRO

    def __init__(self, registry: SchemaRegistry, subject: str, schema: AvroSchema) -> None:
        self._registry = registry
        self._subject = subject
        self._schema = schema
        self._encode = compile_encoder(schema.parsed)
        self._prefix: bytes | None = None

    async def is_registered(self) -> bool:
        """Whether it can write without registering anything.

        Raises RegistryUnavailable, RegistryRefused.
        """
        return await self._registry.find(self._subject, self._schema) is not None

    async def prepare(self) -> None:
        """Raises RegistryUnavailable, RegistryRefused."""
        if self._prefix is None:
            schema_id = await self._registry.id_of(self._subject, self._schema)
            self._prefix = _PREFIX.pack(_MAGIC, schema_id)

    async def encode(self, message: msgspec.Struct) -> bytes:
        """Raises what `prepare` does."""
        await self.prepare()
        assert self._prefix is not None
        return self._prefix + self._encode(message)


def subject_of(topic: str, schema: AvroSchema, settings: RegistrySettings) -> str:
    """The subject for the schema of a topic's values, by Confluent's naming strategies: TopicName,
    RecordName, TopicRecordName."""
    match settings.subjects:
        case "record":
            return schema.name
        case "topic-record":
            return f"{topic}-{schema.name}"
    return f"{topic}-value"


def _schema_id(data: bytes) -> int:
    return int(_PREFIX.unpack_from(data)[1])


def _read(data: bytes, schema: AvroSchema) -> Any:
    buffer = BytesIO(data)
    buffer.seek(_PREFIX.size)
    try:
        value = fastavro.schemaless_reader(buffer, schema.parsed, None)
    except Exception as error:  # corrupt bytes can raise any
        cause = str(error) or type(error).__name__
        text = printable(f"not Avro of schema {schema.name}: {cause}")
        raise MalformedMessage(text) from error
    left = len(data) - buffer.tell()
    if left:
        raise MalformedMessage(f"{left} bytes more than its schema {schema.name} has")
    return value

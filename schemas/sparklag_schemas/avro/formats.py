"""The formats of messages: JSON, or Avro with a schema registry.

The first byte of a message marks its format, so that a topic may hold both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Generic

import msgspec

from sparklag_schemas.codec import JsonDecoder, Message, MessageWriter
from sparklag_schemas.errors import MalformedMessage, MissingPackage, install_command
from sparklag_schemas.messages.lag_event import LagEvent, PartitionRecord
from sparklag_schemas.messages.observation import Observation
from sparklag_schemas.messages.topics import own_topics
from sparklag_schemas.settings import Settings

if TYPE_CHECKING:
    from sparklag_schemas.avro.codec import AvroForm


class MessageReader(Generic[Message]):
    """Reads messages of one type, as JSON or Avro. Unknown fields are ignored."""

    def __init__(
        self, message_type: type[Message], written_as: type, avro: AvroForm | None
    ) -> None:
        self._message_type = message_type
        self._written_as = written_as
        self._json = JsonDecoder(message_type)
        self._avro = avro

    def is_known(self, value: bytes | None) -> bool:
        """True: `decode` needs no `learn` for this value."""
        return self._avro is None or not value or not is_avro(value) or self._avro.is_known(value)

    async def learn(self, values: Iterable[bytes | None]) -> None:
        """Fetch the writer schemas of these values. Call it before `decode`. Raises
        RegistryUnavailable, RegistryRefused: the values cannot be read yet."""
        if self._avro is not None:
            await self._avro.learn(value for value in values if value and is_avro(value))

    def decode(self, data: bytes) -> Message:
        """Raises MalformedMessage, or UnsupportedVersion for a newer major version."""
        if not is_avro(data):
            return self._json.decode(data)
        if self._avro is None:
            raise MalformedMessage("it is in Avro, and no registry.url is set")
        return self._avro.read(data, self._message_type, self._written_as)


class MessageFormats:
    """The writers and readers for the configured formats. They share one cache of the registry."""

    def __init__(self, settings: Settings) -> None:
        """Raises MissingPackage where a package for Avro is missing."""
        self._settings = settings
        self._avro: AvroForm | None = None
        if settings.registry.url is not None:
            try:
                from sparklag_schemas.avro.codec import AvroForm
            except ImportError as missing:
                raise MissingPackage(
                    f"registry.url is set, and {missing.name or missing} is missing:"
                    f" {install_command('avro')}"
                ) from missing
            self._avro = AvroForm(settings.registry)

    def writer(self, message_type: type[msgspec.Struct], topic: str) -> MessageWriter:
        """A writer of messages of that type to that topic."""
        if self._settings.format == "avro" and self._avro is not None:
            return self._avro.writer(message_type, topic)
        return MessageWriter()

    def reader(
        self, message_type: type[Message], written_as: type | None = None
    ) -> MessageReader[Message]:
        """A reader of that type, or of its fields in messages of the type `written_as`."""
        return MessageReader(message_type, written_as or message_type, self._avro)

    @property
    def waiting(self) -> str | None:
        """Why messages wait for the schema registry. None: no message waits."""
        return None if self._avro is None else self._avro.registry.waiting

    async def unregistered(self) -> list[str]:
        """Our topics whose schema is not registered: nothing can be written to them yet. Raises
        RegistryUnavailable, RegistryRefused."""
        if self._avro is None or self._settings.format != "avro":
            return []
        return [
            topic
            for topic, message_type in self._topics().items()
            if not await self._avro.writer(message_type, topic).is_registered()
        ]

    async def register(self) -> list[str]:
        """Register the missing schemas; returns their topics. Raises RegistryUnavailable,
        RegistryRefused."""
        topics = await self.unregistered()
        for topic in topics:
            await self.writer(self._topics()[topic], topic).prepare()
        return topics

    def _topics(self) -> dict[str, type[msgspec.Struct]]:
        names = (spec.name for spec in own_topics(self._settings))
        return dict(zip(names, (Observation, LagEvent, PartitionRecord), strict=False))


def is_avro(data: bytes) -> bool:
    # Confluent's framing; JSON never begins with this byte.
    return data.startswith(b"\0")

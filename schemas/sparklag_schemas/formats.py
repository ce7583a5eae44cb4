"""The forms that messages are written and read in: JSON, or Avro with a schema registry.

A message says by its first byte which of them it is in, so a topic may hold both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Generic, Protocol

import msgspec

from sparklag_schemas.codec import JSON, JsonDecoder, Message, converted, encode
from sparklag_schemas.errors import MalformedMessage, MissingPackage
from sparklag_schemas.lag_event import LagEvent
from sparklag_schemas.observation import Observation
from sparklag_schemas.partition_record import PartitionRecord
from sparklag_schemas.settings import Settings

if TYPE_CHECKING:
    from sparklag_schemas.avro.codec import AvroForm

_AVRO_BEGINS: Final = b"\0"


class MessageWriter(Protocol):
    """Writes messages of one type to one topic."""

    @property
    def content_type(self) -> str:
        """What the header of that name says."""

    async def prepare(self) -> None:
        """Return once `encode` needs nobody else any more.

        Raises RegistryUnavailable, RegistryRefused.
        """

    async def encode(self, message: msgspec.Struct) -> bytes:
        """The record's value. Raises what `prepare` does, where that was not called before."""


class MessageReader(Generic[Message]):
    """Reads messages of one type, in either form. Unknown fields are ignored."""

    def __init__(
        self, message_type: type[Message], written_as: type, avro: AvroForm | None
    ) -> None:
        self._message_type = message_type
        self._written_as = written_as
        self._json = JsonDecoder(message_type)
        self._avro = avro

    async def learn(self, values: Iterable[bytes | None]) -> None:
        """To be called before `decode`: ask for the schemas that these are written in.

        Raises RegistryUnavailable, RegistryRefused: what they say is not known yet.
        """
        if self._avro is not None:
            for value in values:
                if value is not None and _is_avro(value):
                    await self._avro.learn(value)

    def decode(self, data: bytes) -> Message:
        """Raises MalformedMessage, or UnsupportedVersion for a newer major version."""
        if not _is_avro(data):
            return self._json.decode(data)
        if self._avro is None:
            raise MalformedMessage("it is in Avro, and no registry.url is set")
        return converted(self._avro.read(data, self._written_as), self._message_type)


class MessageFormats:
    """The writers and readers that the settings ask for. What one of them learns of the registry,
    all of them know."""

    def __init__(self, settings: Settings) -> None:
        """Raises MissingPackage where one is missing that Avro needs."""
        self._settings = settings
        self._avro = _avro_form(settings)

    def writer(self, message_type: type[msgspec.Struct], topic: str) -> MessageWriter:
        """Of messages of that type to that topic."""
        if self._settings.format == "avro" and self._avro is not None:
            return self._avro.writer(message_type, topic)
        return _JsonWriter()

    def reader(
        self, message_type: type[Message], written_as: type | None = None
    ) -> MessageReader[Message]:
        """Of messages of that type, or of a part of what messages `written_as` say."""
        return MessageReader(message_type, written_as or message_type, self._avro)

    async def unregistered(self) -> list[str]:
        """Which of our topics have no schema registered yet that is needed to write to them.

        Raises RegistryUnavailable, RegistryRefused.
        """
        if self._avro is None or self._settings.format != "avro":
            return []
        return [
            topic
            for topic, message_type in self._topics().items()
            if not await self._avro.writer(message_type, topic).is_registered()
        ]

    async def register(self) -> list[str]:
        """Register what is; the topics. Raises RegistryUnavailable, RegistryRefused."""
        topics = await self.unregistered()
        for topic in topics:
            await self.writer(self._topics()[topic], topic).prepare()
        return topics

    def _topics(self) -> dict[str, type[msgspec.Struct]]:
        settings = self._settings
        topics: dict[str, type[msgspec.Struct]] = {
            settings.offsets_topic: Observation,
            settings.lag_topic: LagEvent,
        }
        if settings.partition_records:
            topics[settings.partition_topic] = PartitionRecord
        return topics


class _JsonWriter:
    content_type: Final = JSON

    async def prepare(self) -> None:
        """Nothing is needed."""

    async def encode(self, message: msgspec.Struct) -> bytes:
        return encode(message)


def as_json(data: bytes, message: msgspec.Struct) -> bytes:
    """The JSON of a message that was read from `data`: as it stands there, if it is JSON."""
    return encode(message) if _is_avro(data) else data


def _is_avro(data: bytes) -> bool:
    """Whether it is as Confluent frames it; JSON never begins so."""
    return data.startswith(_AVRO_BEGINS)


def _avro_form(settings: Settings) -> AvroForm | None:
    if settings.registry.url is None:
        return None
    try:
        from sparklag_schemas.avro.codec import AvroForm
    except ImportError as missing:
        raise MissingPackage(
            f"registry.url is set, and {missing.name or missing} is missing:"
            " pip install 'sparklag[avro]'"
        ) from missing
    return AvroForm(settings.registry)

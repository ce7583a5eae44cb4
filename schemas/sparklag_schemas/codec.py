"""Messages as JSON. Known fields are checked, unknown fields are ignored."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec

from sparklag_schemas.errors import MalformedMessage, OutOfBounds, UnsupportedVersion
from sparklag_schemas.messages.enumerations import SCHEMA_VERSION
from sparklag_schemas.messages.headers import JSON
from sparklag_schemas.messages.lag_event import LagEvent
from sparklag_schemas.messages.observation import Observation
from sparklag_schemas.text.printable import printable

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Larger messages are refused before they are parsed: about 100,000 partitions in one query."""
MAX_CONTAINERS: Final = 160_000
"""Limit of objects and arrays: an empty dict takes 30 times the memory of its text."""
NOT_JSON: Final = (msgspec.DecodeError, RecursionError, ValueError, OutOfBounds)
"""The errors that decoding raises for a text that is not the expected JSON."""

_MAJOR: Final = int(SCHEMA_VERSION.split(".")[0])

_encoder = msgspec.json.Encoder()

Message = TypeVar("Message")


class _Versioned(msgspec.Struct):
    schema_version: str = SCHEMA_VERSION


_versions = msgspec.json.Decoder(_Versioned)


class JsonDecoder(Generic[Message]):
    """Reads messages of one type. Unknown fields are ignored."""

    def __init__(self, message_type: type[Message]) -> None:
        self._type = message_type

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Message]:
        # Built at the first message: at import it would double the time that the import takes.
        return msgspec.json.Decoder(self._type)

    def decode(self, data: bytes) -> Message:
        """Raises MalformedMessage, OutOfBounds, or UnsupportedVersion for a newer major version."""
        bounded_json(data)
        try:
            message = self._decoder.decode(data)
        except NOT_JSON as error:
            # A newer major version may have another shape: then the version is the reason.
            with suppress(*NOT_JSON):
                _refuse_newer(_versions.decode(data).schema_version)
            raise MalformedMessage(printable(str(error))) from error
        _refuse_newer(getattr(message, "schema_version", SCHEMA_VERSION))
        return message


def bounded_json(data: bytes) -> bytes:
    """Returns `data` if it is small enough; brackets in strings count too. Raises OutOfBounds."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise OutOfBounds(f"{len(data)} bytes, at most {MAX_MESSAGE_BYTES} are read")
    containers = data.count(b"{") + data.count(b"[")
    if containers > MAX_CONTAINERS:
        raise OutOfBounds(f"{containers} objects and arrays, at most {MAX_CONTAINERS} are read")
    return data


def converted(value: Any, message_type: type[Message]) -> Message:
    """The message from dicts and lists, with the rules and errors of JSON."""
    try:
        message = msgspec.convert(value, message_type, str_keys=True)
    except msgspec.ValidationError as error:
        raise invalid(error, value) from error
    _refuse_newer(getattr(message, "schema_version", SCHEMA_VERSION))
    return message


def invalid(error: msgspec.ValidationError, fields: Mapping[str, Any]) -> MalformedMessage:
    """The error for a message with these fields. Raises UnsupportedVersion for a newer one."""
    _refuse_newer(str(fields.get("schema_version")))
    return MalformedMessage(printable(str(error)))


def encode(message: msgspec.Struct) -> bytes:
    """The message as UTF-8 JSON."""
    return _encoder.encode(message)


class MessageWriter:
    """Writes messages of one type to one topic: as JSON, or in the format of a subclass."""

    content_type: ClassVar[str] = JSON

    async def prepare(self) -> None:
        """Wait until `encode` no longer needs the registry. Raises RegistryUnavailable,
        RegistryRefused."""

    async def encode(self, message: msgspec.Struct) -> bytes:
        """The record's value. Raises as `prepare` does, unless `prepare` has returned."""
        return encode(message)


decode_observation: Final = JsonDecoder(Observation).decode
decode_lag_event: Final = JsonDecoder(LagEvent).decode


def _refuse_newer(version: str) -> None:
    major = version.split(".")[0]
    if major.isdigit() and int(major) > _MAJOR:
        raise UnsupportedVersion(
            f"written in schema version {version}, this reads {_MAJOR}.x: upgrade sparklag here"
        )

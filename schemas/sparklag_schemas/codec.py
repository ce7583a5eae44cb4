"""One codec for both messages: JSON, strict about what is there, blind to what is new."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from sparklag_schemas.errors import MalformedMessage, UnsupportedVersion
from sparklag_schemas.lag_event import LagEvent
from sparklag_schemas.observation import Observation
from sparklag_schemas.vocabulary import SCHEMA_VERSION

CONTENT_TYPE: Final = "application/json"
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Larger messages are refused before they are parsed: about 100,000 partitions in one query."""

_MAJOR: Final = int(SCHEMA_VERSION.split(".")[0])

_encoder = msgspec.json.Encoder()
_observations = msgspec.json.Decoder(Observation)
_lag_events = msgspec.json.Decoder(LagEvent)

Message = TypeVar("Message", Observation, LagEvent)


class _Versioned(msgspec.Struct):
    schema_version: str = SCHEMA_VERSION


_versions = msgspec.json.Decoder(_Versioned)


def encode(message: Observation | LagEvent) -> bytes:
    """The message as UTF-8 JSON."""
    return _encoder.encode(message)


def decode_observation(data: bytes) -> Observation:
    """The observation in `data`. Unknown fields are ignored.

    Raises MalformedMessage, or UnsupportedVersion for a newer major version.
    """
    return _decode(data, _observations)


def decode_lag_event(data: bytes) -> LagEvent:
    """The lag event in `data`. Unknown fields are ignored.

    Raises MalformedMessage, or UnsupportedVersion for a newer major version.
    """
    return _decode(data, _lag_events)


def _decode(data: bytes, decoder: msgspec.json.Decoder[Message]) -> Message:
    if len(data) > MAX_MESSAGE_BYTES:
        raise MalformedMessage(f"{len(data)} bytes, at most {MAX_MESSAGE_BYTES} are read")
    try:
        message = decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        # A newer major version may well break the shape too: then that is the thing to say.
        _refuse_newer(_version_of(data))
        raise MalformedMessage(str(error)) from error
    _refuse_newer(message.schema_version)
    return message


def _version_of(data: bytes) -> str:
    try:
        return _versions.decode(data).schema_version
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return SCHEMA_VERSION


def _refuse_newer(version: str) -> None:
    major = version.split(".")[0]
    if major.isdigit() and int(major) > _MAJOR:
        raise UnsupportedVersion(
            f"written in schema version {version}, this reads {_MAJOR}.x: upgrade sparklag here"
        )

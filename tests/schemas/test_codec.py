"""The codec: written messages are read again; other texts are refused in one line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparklag_schemas import (
    MalformedMessage,
    UnsupportedVersion,
    decode_lag_event,
    decode_observation,
    encode,
)
from sparklag_schemas.codec import MAX_MESSAGE_BYTES
from sparklag_schemas.errors import OutOfBounds
from tests.messages import lag_event, observation


def changed(message: bytes, **fields: Any) -> bytes:
    document = json.loads(message)
    for name, value in fields.items():
        if value is ...:
            del document[name]
        else:
            document[name] = value
    return json.dumps(document).encode()


def test_fields_of_a_newer_minor_version_are_ignored() -> None:
    newer = changed(encode(lag_event()), schema_version="1.9", mood="good")
    assert decode_lag_event(newer).total_lag == 65


@pytest.mark.parametrize("field", ["query_id", "run_id", "cause", "observed_at", "sources"])
def test_a_missing_required_field_is_named(field: str) -> None:
    with pytest.raises(MalformedMessage, match=field):
        decode_observation(changed(encode(observation()), **{field: ...}))


@pytest.mark.parametrize("shape", [encode(lag_event()), b'{"everything": "else"}'])
def test_a_newer_major_version_is_refused(shape: bytes) -> None:
    newer = changed(shape, schema_version="2.0")
    with pytest.raises(UnsupportedVersion, match=r"version 2\.0, this reads 1\.x"):
        decode_lag_event(newer)


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe\x00",
        b'{"query_id": 1}',
        b"[" * 100_000,
        b'{"schema_version": []}',
    ],
)
def test_junk_is_refused_in_one_line(junk: bytes) -> None:
    with pytest.raises(MalformedMessage) as refusal:
        decode_observation(junk)
    assert "\n" not in str(refusal.value)


def test_an_oversized_message_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(OutOfBounds, match=str(MAX_MESSAGE_BYTES)):
        decode_observation(b" " * (MAX_MESSAGE_BYTES + 1))


def test_a_negative_lag_is_no_lag() -> None:
    event = json.loads(encode(lag_event()))
    event["topics"][0]["partitions"][0]["lag"] = -1
    with pytest.raises(MalformedMessage, match=">= 0"):
        decode_lag_event(json.dumps(event).encode())

"""Signed messages: HMAC-SHA256 by a key that drivers and service share (`signing_key`).

It covers topic, record key and value, so that one message cannot be replaced by another.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterable
from typing import Final

from sparklag_schemas.errors import WrongSignature
from sparklag_schemas.headers import Headers
from sparklag_schemas.settings import Settings

HEADER: Final = "sparklag-signature"
_LENGTHS: Final = struct.Struct(">QQ")


class Signatures:
    """Signs what is written and checks what is read, where a key is set."""

    def __init__(self, settings: Settings) -> None:
        keys = (settings.signing_key, *settings.accepted_signing_keys)
        self._keys = [key.encode() for key in keys if key is not None]

    def headers(self, topic: str, key: bytes, value: bytes | None) -> Headers:
        """The headers to add to a record; none without a key."""
        if not self._keys:
            return []
        return [(HEADER, _digest(self._keys[0], topic, key, value))]

    def check(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]],
    ) -> None:
        """Raises WrongSignature where keys are set and none of them has signed this."""
        if not self._keys:
            return
        signature = next((value for name, value in headers if name == HEADER), None)
        if signature is None:
            raise WrongSignature("it is not signed, and signing_key is set here")
        if not any(
            hmac.compare_digest(_digest(accepted, topic, key or b"", value), signature)
            for accepted in self._keys
        ):
            raise WrongSignature("its signature is of another key, or of another message")


def _digest(secret: bytes, topic: str, key: bytes, value: bytes | None) -> bytes:
    name = topic.encode()
    signed = hmac.new(secret, _LENGTHS.pack(len(name), len(key)) + name + key, "sha256")
    # A tombstone differs from an empty value.
    signed.update(b"\0" if value is None else b"\1")
    signed.update(value or b"")
    return signed.hexdigest().encode()

"""What is written to readers of the live stream, as Server-Sent Events. Pure.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import msgspec

RETRY_MS = 2_000
"""How long a reader that lost its connection waits before it comes back."""

KEEP_ALIVE = b":\n\n"
OPENING = f"retry: {RETRY_MS}\n\n".encode()


def lag(document: bytes) -> bytes:
    """An event with the very document, without its id."""
    return b"event: lag\ndata: " + _one_line(document) + b"\n\n"


def forgotten(query_id: str) -> bytes:
    """The query has left a tombstone."""
    return b"event: forgotten\ndata: " + msgspec.json.encode({"query_id": query_id}) + b"\n\n"


def gap(since: str, reason: str) -> bytes:
    """Events are missing from here on; what stands now follows."""
    said = msgspec.json.encode({"since": since, "reason": reason})
    return b"event: gap\ndata: " + said + b"\n\n"


def with_id(place: bytes, frame: bytes) -> bytes:
    """The frame, and the place that its reader has reached with it."""
    return b"id: " + place + b"\n" + frame


def _one_line(document: bytes) -> bytes:
    """Ours has no line breaks. In another writer's JSON they are white space."""
    if b"\n" in document or b"\r" in document:
        return document.replace(b"\r", b" ").replace(b"\n", b" ")
    return document

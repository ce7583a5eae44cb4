"""What is written to readers of the live stream: Server-Sent Events and their ids. Pure.

https://html.spec.whatwg.org/multipage/server-sent-events.html

An id names, for each partition of `consumer-lag`, the last offset that its reader has seen:
`3:1207` of one query, which is all in one partition, `0:88,1:93,3:1207` of all, `-` of a reader
that has seen nothing yet. Every instance reads the same topic, so each takes the others' ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from sparklag_service.view.summary import summary_of_document

NOTHING_SEEN: Final = -1
KEEP_ALIVE: Final = b":\n\n"
OPENING: Final = b"retry: 2000\n\n"
"""How long a reader that lost its connection waits before it comes back, milliseconds."""

_NO_OFFSETS: Final = b"-"
"""Not empty: an empty id is none to a reader, who would come back without one."""
_ID: Final = re.compile(r"\d{1,9}:\d{1,19}(,\d{1,9}:\d{1,19})*")
_MAX_ID: Final = 64 * 1024


def id_parts(offsets: Mapping[int, int]) -> dict[int, bytes]:
    """The parts of an id, by partition, in order."""
    return {p: id_part(p, offset) for p, offset in sorted(offsets.items()) if offset >= 0}


def id_part(partition: int, offset: int) -> bytes:
    """Of one partition, that of a reader that has seen this offset last."""
    return b"%d:%d" % (partition, offset)


def format_id(parts: Mapping[int, bytes]) -> bytes:
    """The id of a reader that has seen so much."""
    return b",".join(parts.values()) or _NO_OFFSETS


def parse_id(text: str) -> dict[int, int] | None:
    """The offsets in an id. None: it is no id of this stream."""
    if text == _NO_OFFSETS.decode():
        return {}
    if len(text) > _MAX_ID or not _ID.fullmatch(text):
        return None
    pairs = (pair.split(":") for pair in text.split(","))
    return {int(partition): int(offset) for partition, offset in pairs}


def lag(document: bytes) -> bytes:
    """An event with that very document, without its id."""
    # Ours has no line breaks. In another writer's JSON they are white space.
    if b"\n" in document or b"\r" in document:
        document = document.replace(b"\r", b" ").replace(b"\n", b" ")
    return b"event: lag\ndata: " + document + b"\n\n"


def summarized(frame: bytes) -> bytes:
    """A frame of an event, with its summary in place of the document."""
    head, separator, document = frame.partition(b"\ndata: ")
    return head + separator + summary_of_document(document) + b"\n\n"


def forgotten(query_id: str) -> bytes:
    """The query has left a tombstone."""
    return b"event: forgotten\ndata: " + msgspec.json.encode({"query_id": query_id}) + b"\n\n"


def gap(since: str, reason: str) -> bytes:
    """Events are missing from here on; the newest of each query follows."""
    data = msgspec.json.encode({"since": since, "reason": reason})
    return b"event: gap\ndata: " + data + b"\n\n"


def with_id(parts: Mapping[int, bytes], frame: bytes) -> bytes:
    """The frame, with the id of a reader that has seen so much then."""
    return b"id: " + format_id(parts) + b"\n" + frame

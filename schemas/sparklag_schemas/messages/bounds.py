"""The bounds of numbers and texts in messages.

msgspec checks the bounds when it decodes a message, not when a struct is created. The JSON Schemas
have the same bounds.
"""

from __future__ import annotations

from typing import Annotated, Final, get_args

from msgspec import Meta, Struct
from msgspec.structs import fields

MAX_INT64: Final = 2**63 - 1
MAX_EPOCH_MS: Final = 253_402_300_799_999
"""The end of the year 9999, the last year of Python's datetime and of ISO 8601."""
MAX_DURATION_S: Final = 1e10
"""Three hundred years."""
MAX_DURATION_MS: Final = int(MAX_DURATION_S * 1000)
MAX_RATE: Final = float(MAX_INT64)
"""Records per second."""
MAX_NAME: Final = 1_000
"""Characters of an id or of a query's name."""
MAX_TOPIC_NAME: Final = 249
"""Characters, Kafka's own limit."""
MAX_PARTITION: Final = 2**31 - 1
MAX_TEXT: Final = 10_000
"""Characters of sentences, addresses and patterns."""

AGES: Final = Meta(extra={"ages": True})
"""Marks a field that changes with time alone."""

Count = Annotated[int, Meta(ge=0, le=MAX_INT64)]
Offset = Count
Int64 = Annotated[int, Meta(ge=-(2**63), le=MAX_INT64)]
Index = Annotated[int, Meta(ge=0, le=MAX_PARTITION)]
PartitionNumber = Index
EpochMs = Annotated[int, Meta(ge=0, le=MAX_EPOCH_MS)]
DurationMs = Annotated[int, Meta(ge=0, le=MAX_DURATION_MS)]
DurationS = Annotated[float, Meta(ge=0, le=MAX_DURATION_S)]
Rate = Annotated[float, Meta(ge=0, le=MAX_RATE)]
SignedRate = Annotated[float, Meta(ge=-MAX_RATE, le=MAX_RATE)]
Share = Annotated[float, Meta(ge=0, le=1)]
Name = Annotated[str, Meta(max_length=MAX_NAME)]
TopicName = Annotated[str, Meta(min_length=1, max_length=MAX_TOPIC_NAME)]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
HTTP_URL: Final = r"^https?://[\w.:\[\]-]+(/[\w./~%-]*)?$"
"""A host, and at most a path."""
HttpUrl = Annotated[str, Meta(pattern=HTTP_URL, max_length=MAX_NAME)]


def bounded(count: int) -> int:
    """`count`, at most the largest count."""
    return min(count, MAX_INT64)


def bounded_s(seconds: float | None) -> float | None:
    """`seconds`, at most the longest duration."""
    return None if seconds is None else min(seconds, MAX_DURATION_S)


def facts(kind: type[Struct]) -> list[str]:
    """The names of the fields of `kind` that are not marked by `AGES`."""
    metas = {field.name: get_args(field.type)[1:] for field in fields(kind)}
    return [name for name, marks in metas.items() if AGES not in marks]

"""Parses Spark's checkpoint files: `metadata`, `offsets/N`, `commits/N`, `sources/N/0`. Pure.

`offsets/N` v1 is `v1`, a line of JSON metadata (empty in continuous mode), and a line for each
source, in their order. v2 (Spark 4.2 on) has lines `source:offset`. `-` is a source without an
offset. Spark writes no newline at the end, and reads files that have one, and other line ends:
editors and copies change them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct, field

from sparklag_offsets.errors import MalformedCheckpoint, UnsupportedCheckpoint
from sparklag_schemas import Offsets
from sparklag_schemas.codec import NOT_JSON
from sparklag_schemas.messages.bounds import MAX_NAME, Offset, PartitionNumber, TopicName

_FORMATS: Final = (b"v1", b"v2")
_FORMAT: Final = re.compile(rb"v[0-9]{1,9}")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_NO_OFFSET: Final = b"-"
_NAMED_SOURCES: Final = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
"""A setting in the metadata of v2: sources have names, which may be numbers too."""
_MAX_LINES, _MAX_KEYS = 1_000, 250_000  # 100,000 partitions, each of a topic of its own


class _Conf(Struct):
    named_sources: Raw = field(name=_NAMED_SOURCES, default=Raw())


class _Metadata(Struct):
    """`metadata`, and the second line of an offsets file."""

    id: str = ""
    conf: _Conf | None = None


_KAFKA: Final = msgspec.json.Decoder(
    dict[TopicName, Annotated[dict[PartitionNumber, Offset], Meta(min_length=1)]]
)
_METADATA: Final = msgspec.json.Decoder(_Metadata)
_JSON: Final = msgspec.json.Decoder(Raw)  # checks it, and builds nothing


@dataclass(frozen=True)
class OffsetLine:
    """The line of one source in an offsets file."""

    kafka: Offsets | None = None
    """Next offsets, where the line has the shape of Kafka offsets."""
    is_absent: bool = False
    """`-`: the source has no offset in this batch."""
    is_empty: bool = False
    """`{}`: a Kafka source without topics; other kinds of sources may write it too."""


@dataclass(frozen=True)
class OffsetFile:
    """`offsets/N`: its lines by the number of the source."""

    lines: dict[int, OffsetLine]
    is_continuous: bool = False
    names: tuple[str, ...] | None = None
    """Names of the sources, if they have names, in the order of their numbers. A restart may then
    add or remove a source, which changes the numbers."""

    def kafka_sources(self) -> frozenset[int]:
        """The sources whose line has the shape of Kafka's."""
        return frozenset(number for number, line in self.lines.items() if line.kafka is not None)


def parse_offsets(content: bytes, name: str) -> OffsetFile:
    """Parse an offsets file. `name`: its name in errors.

    Sources of v2 that have names in place of numbers are numbered in the order of their names.
    Raises MalformedCheckpoint (also for a file that is cut off), UnsupportedCheckpoint.
    """
    content = _with_newlines(content)
    if content.count(b"\n") > _MAX_LINES or content.count(b":") > _MAX_KEYS:
        raise MalformedCheckpoint(f"{name} has over {_MAX_LINES:,} lines or {_MAX_KEYS:,} keys")
    version, rest = _split_known_version(content, name)
    text, *lines = rest.removesuffix(b"\n").split(b"\n")
    text = text.strip()
    metadata = _decoded(text, _METADATA.decode) if text else _Metadata()
    if metadata is None:
        raise MalformedCheckpoint(f"{name}: its second line is not a JSON object")
    if not lines:
        raise MalformedCheckpoint(f"{name} is cut off: it names no source")
    names = None
    keyed = dict(enumerate(lines))
    if version == b"v2":
        named = _named_lines(lines, name)
        has_names = metadata.conf is not None and bytes(metadata.conf.named_sources) == b'"true"'
        if not has_names and all(len(n) < 10 and _is_number(n) for n in named):
            keyed = {int(source): named[source] for source in sorted(named, key=int)}
        else:
            names = tuple(sorted(named))
            keyed = {number: named[source] for number, source in enumerate(names)}
    return OffsetFile(
        {source: _parse_line(line, name, source) for source, line in keyed.items()},
        is_continuous=not text,
        names=names,
    )


def parse_commit(content: bytes, name: str) -> None:
    """Check that a commits file, of any version, is complete; its content is not needed. Raises
    MalformedCheckpoint."""
    # Spark trims the version, takes it alone for a commit, and reads no third line.
    version, _, rest = _with_newlines(content).partition(b"\n")
    _split_version(content and version.strip() + b"\n", name)
    line = rest.partition(b"\n")[0].lstrip()
    if rest and (not line.startswith(b"{") or _decoded(line, _JSON.decode) is None):
        raise MalformedCheckpoint(f"{name} is cut off, or not what Spark writes")


def parse_metadata(content: bytes, name: str) -> str:
    """The query's id. Raises MalformedCheckpoint."""
    metadata: _Metadata | None = _decoded(content, _METADATA.decode)
    if metadata is None or not metadata.id.strip() or len(metadata.id) > MAX_NAME:
        raise MalformedCheckpoint(
            f"{name} holds no query id: it is cut off, or not Spark's; no Spark starts from it"
        )
    return metadata.id


def parse_initial_offsets(content: bytes, name: str) -> Offsets | None:
    """The first offsets of a Kafka source, from `sources/N/0`. None: of another kind of source.

    Raises MalformedCheckpoint, UnsupportedCheckpoint.
    """
    # Kafka's files begin with this byte, so that Spark 2.1 refuses them.
    if not content.startswith(b"\0"):
        return None
    _, rest = _split_known_version(content[1:], name)
    if rest.count(b":") > _MAX_KEYS or _decoded(rest, _JSON.decode) is None:
        raise MalformedCheckpoint(f"{name} is cut off, or too long")
    return _decoded(rest, _KAFKA.decode) or None


def parse_batch_id(file_name: str) -> int | None:
    """The batch id of a file in `offsets/` or `commits/`. None for other files: .crc, .tmp."""
    return int(file_name) if _is_number(file_name) else None


def _with_newlines(content: bytes) -> bytes:
    """The content as Java reads lines, which end with \\n, \\r\\n or \\r."""
    return content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _split_version(content: bytes, name: str) -> tuple[bytes, bytes]:
    version, newline, rest = content.partition(b"\n")
    if not newline:
        raise MalformedCheckpoint(f"{name} is {'cut off' if content else 'empty'}")
    if not _FORMAT.fullmatch(version):
        raise MalformedCheckpoint(f"{name} does not begin with a version, as Spark's files do")
    return version, rest


def _split_known_version(content: bytes, name: str) -> tuple[bytes, bytes]:
    version, rest = _split_version(content, name)
    if version not in _FORMATS:
        raise UnsupportedCheckpoint(
            f"{name} has format {version.decode()}, and this sparklag reads v1 and v2:"
            " a newer Spark wrote it, is there a newer sparklag?"
        )
    return version, rest


def _is_number(text: str) -> bool:
    return text.isascii() and _NUMBER.fullmatch(text) is not None


def _named_lines(lines: Sequence[bytes], name: str) -> dict[str, bytes]:
    """Lines of v2 by the text before their first colon. They have no order."""
    named: dict[str, bytes] = {}
    for line in lines:
        key, colon, offset = line.partition(b":")
        source = key.decode("utf-8", errors="replace")
        if not colon or not key or source in named:
            raise MalformedCheckpoint(f"{name}: a line is not one source and its offset")
        named[source] = offset
    return named


def _parse_line(line: bytes, name: str, source: int) -> OffsetLine:
    if line == _NO_OFFSET:
        return OffsetLine(is_absent=True)
    if not line.lstrip().startswith((b"{", b"[")):
        if not line.strip():
            raise MalformedCheckpoint(f"{name}: the line of source {source} is empty")
        # The offset of another kind of source: a number, or any text.
        return OffsetLine()
    decoded: Offsets | None = _decoded(line, _KAFKA.decode)
    if decoded is not None:
        return OffsetLine(kafka=decoded or None, is_empty=not decoded)
    if _decoded(line, _JSON.decode) is None:
        raise MalformedCheckpoint(f"{name}: the line of source {source} is cut off")
    return OffsetLine()


def _decoded(line: bytes, decode: Callable[[bytes], Any]) -> Any:
    """The value; None where it cannot be decoded (no valid line is `null`)."""
    try:
        return decode(line)
    except NOT_JSON:
        return None

"""Decompresses what Kafka's producers compress, and never into more than was asked for. Pure.

aiokafka's own functions take whatever comes out: some kilobytes may become gigabytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

import cramjam  # as aiokafka does

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
_GZIP_WINDOW: Final = 31
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD: Final = 16
_USUAL_RATIO: Final = 16
_LEAST_ROOM: Final = 65_536
_MORE_ROOM: Final = 4

_INT32 = Struct(">i")


class Undecodable(Exception):
    """It is not what it says to be, or becomes too large."""


def decompress(codec: int, data: bytes, most_bytes: int) -> bytes:
    """What `data` holds, by the codec's number in Kafka. Raises Undecodable."""
    try:
        if codec == GZIP:
            return _gunzip(data, most_bytes)
        if codec == SNAPPY:
            return _unsnap(data, most_bytes)
        if codec == LZ4:
            return _into_room(cramjam.lz4.decompress_into, data, most_bytes)
        if codec == ZSTD:
            return _into_room(cramjam.zstd.decompress_into, data, most_bytes)
    except (zlib.error, cramjam.DecompressionError) as error:
        raise Undecodable(str(error)) from error
    raise Undecodable(f"compressed by codec {codec}, which is not known")


def _gunzip(data: bytes, most_bytes: int) -> bytes:
    reader = zlib.decompressobj(_GZIP_WINDOW)
    found = reader.decompress(data, most_bytes)
    if not reader.eof:
        raise Undecodable(f"more than {most_bytes} bytes, or cut")
    return found


def _into_room(into: Callable[[bytes, bytearray], int], data: bytes, most_bytes: int) -> bytes:
    """Its size is not known before. All the room there may be costs as much as its bytes."""
    size = min(most_bytes, _LEAST_ROOM + _USUAL_RATIO * len(data))
    while True:
        room = bytearray(size)
        try:
            return bytes(memoryview(room)[: into(data, room)])
        except cramjam.DecompressionError:
            if size == most_bytes:
                raise
        size = min(most_bytes, size * _MORE_ROOM)


def _unsnap(data: bytes, most_bytes: int) -> bytes:
    pieces = []
    for block in _blocks(data):
        size = cramjam.snappy.decompress_raw_len(block)
        most_bytes -= size
        if most_bytes < 0:
            raise Undecodable("it becomes too large")
        pieces.append(bytes(cramjam.snappy.decompress_raw(block, output_len=size)))
    return b"".join(pieces)


def _blocks(data: bytes) -> Iterator[bytes]:
    """Java's producers cut it in blocks, others do not."""
    if not data.startswith(_XERIAL):
        yield data
        return
    at = _XERIAL_HEAD
    while at < len(data):
        if at + 4 > len(data):
            raise Undecodable("cut")
        (size,) = _INT32.unpack_from(data, at)
        at += 4
        if size < 0 or at + size > len(data):
            raise Undecodable("cut")
        yield data[at : at + size]
        at += size
